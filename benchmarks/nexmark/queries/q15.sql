-- Bids, bidders and auctions of a day, by rank of price.
CREATE TABLE answer (
  `day` STRING, bids BIGINT, bids_1 BIGINT, bids_2 BIGINT, bids_3 BIGINT, bidders BIGINT, bidders_1 BIGINT,
  bidders_2 BIGINT, bidders_3 BIGINT, auctions BIGINT, auctions_1 BIGINT, auctions_2 BIGINT, auctions_3 BIGINT
) WITH (${sink});

INSERT INTO answer
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'),
       COUNT(*),
       COUNT(*) FILTER (WHERE price < 10000),
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(*) FILTER (WHERE price >= 1000000),
       COUNT(DISTINCT bidder),
       COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
       COUNT(DISTINCT auction),
       COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
       COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid
GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
