-- The prices of each auction of a day.
CREATE TABLE answer (
  auction BIGINT, `day` STRING, bids BIGINT, bids_1 BIGINT, bids_2 BIGINT, bids_3 BIGINT,
  lowest BIGINT, highest BIGINT, mean BIGINT, total BIGINT
) WITH (${sink});

INSERT INTO answer
SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'),
       COUNT(*),
       COUNT(*) FILTER (WHERE price < 10000),
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(*) FILTER (WHERE price >= 1000000),
       MIN(price), MAX(price), AVG(price), SUM(price)
FROM bid
GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
