-- The highest bids of each ten seconds.
CREATE TABLE answer (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING) WITH (${sink});

INSERT INTO answer
SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS most, window_end AS ends
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS m ON b.price = m.most
WHERE b.`dateTime` BETWEEN m.ends - INTERVAL '10' SECOND AND m.ends;
