-- How many bids somebody makes before ten seconds of rest.
CREATE TABLE answer (bidder BIGINT, bids BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3)) WITH (${sink});

INSERT INTO answer
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
