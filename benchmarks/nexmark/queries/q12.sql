-- How many bids somebody makes in ten seconds of the clock.
CREATE TABLE answer (bidder BIGINT, bids BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3)) WITH (${sink});

CREATE VIEW clocked AS SELECT *, PROCTIME() AS p_time FROM bid;

INSERT INTO answer
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE(TABLE clocked, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
