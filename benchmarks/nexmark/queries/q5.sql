-- The auctions with the most bids of the last ten seconds, every two seconds.
CREATE TABLE answer (auction BIGINT, num BIGINT) WITH (${sink});

INSERT INTO answer
SELECT b.auction, b.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starts, window_end AS ends
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS b
JOIN (
  SELECT MAX(num) AS most, starts, ends
  FROM (
    SELECT COUNT(*) AS num, window_start AS starts, window_end AS ends
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  )
  GROUP BY starts, ends
) AS m ON b.starts = m.starts AND b.ends = m.ends AND b.num >= m.most;
