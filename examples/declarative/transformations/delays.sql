-- Each run recomputes it from the whole table.
CREATE MATERIALIZED VIEW delays AS
SELECT carrier, hour, count(*) AS flights, avg(dep_delay) AS delay
FROM flights
GROUP BY carrier, hour;
