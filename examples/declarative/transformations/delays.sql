-- Computed anew from the whole table by each run.
CREATE MATERIALIZED VIEW delays AS
SELECT carrier, hour, count(*) AS flights, avg(dep_delay) AS delay
FROM flights
GROUP BY carrier, hour;
