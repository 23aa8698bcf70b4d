-- Prices, times of day and letters. Nexmark counts letters by a function of its own.
CREATE TABLE answer (
  auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), time_of_day STRING, `dateTime` TIMESTAMP(3), extra STRING, letters INT
) WITH (${sink});

INSERT INTO answer
SELECT auction, bidder, 0.908 * price,
       CASE WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
            WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END,
       `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
