-- Bids as they are: what reading and writing cost.
CREATE TABLE answer (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING) WITH (${sink});

INSERT INTO answer SELECT auction, bidder, price, `dateTime`, extra FROM bid;
