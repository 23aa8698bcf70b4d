-- Prices in another currency.
CREATE TABLE answer (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING)
WITH (${sink});

INSERT INTO answer SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid;
