-- The bids on some auctions.
CREATE TABLE answer (auction BIGINT, price BIGINT) WITH (${sink});

INSERT INTO answer SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
