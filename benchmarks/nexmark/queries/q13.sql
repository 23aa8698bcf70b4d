-- Bids with a word of a bounded table. Nexmark looks it up by the clock; neither engine looks rows up in files, so that the table has
-- a time before all bids, and is joined as of theirs.
CREATE TABLE side_input (
  remainder BIGINT, word STRING, since TIMESTAMP(3), WATERMARK FOR since AS since, PRIMARY KEY (remainder) NOT ENFORCED
) WITH (${side});

CREATE TABLE answer (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), word STRING) WITH (${sink});

CREATE VIEW keyed AS SELECT *, MOD(auction, 10000) AS remainder FROM bid;

INSERT INTO answer
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.word
FROM keyed AS b JOIN side_input FOR SYSTEM_TIME AS OF b.`dateTime` AS s ON b.remainder = s.remainder;
