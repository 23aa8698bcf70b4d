-- The mean of the prices that the last ten auctions of a seller came to. Nexmark writes it as OVER of rows that change, which Flink
-- does not run; the ten newest by ROW_NUMBER are the same rows.
CREATE TABLE answer (seller BIGINT, price BIGINT) WITH (${sink});

INSERT INTO answer
SELECT seller, AVG(price)
FROM (
  SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY `dateTime` DESC, id DESC) AS place
  FROM (
    SELECT a.id, a.seller, b.price, b.`dateTime`,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime`) AS rank_of_bid
    FROM auction AS a JOIN bid AS b ON a.id = b.auction
    WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  )
  WHERE rank_of_bid <= 1
)
WHERE place <= 10
GROUP BY seller;
