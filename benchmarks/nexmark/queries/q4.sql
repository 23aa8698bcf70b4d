-- The mean of the prices that auctions of a category came to.
CREATE TABLE answer (category BIGINT, price BIGINT) WITH (${sink});

INSERT INTO answer
SELECT category, AVG(price)
FROM (
  SELECT a.id, a.category, MAX(b.price) AS price
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;
