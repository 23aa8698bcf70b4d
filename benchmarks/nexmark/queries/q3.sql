-- Who sells in one category and in three states.
CREATE TABLE answer (name STRING, city STRING, state STRING, id BIGINT) WITH (${sink});

INSERT INTO answer
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
