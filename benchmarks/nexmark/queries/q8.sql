-- Who came and opened an auction within the same ten seconds.
CREATE TABLE answer (id BIGINT, name STRING, starts TIMESTAMP(3)) WITH (${sink});

INSERT INTO answer
SELECT p.id, p.name, p.starts
FROM (
  SELECT id, name, window_start AS starts, window_end AS ends
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS p
JOIN (
  SELECT seller, window_start AS starts, window_end AS ends
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS a ON p.id = a.seller AND p.starts = a.starts AND p.ends = a.ends;
