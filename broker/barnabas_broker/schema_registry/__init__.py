"""A schema registry for development and tests: Confluent's REST API, with its state in the broker's topic ``_schemas``.

Imported by the programs and by the broker for tests; imports the broker, and avro and aiohttp (extra ``registry``).

- :mod:`~.schemas`: a schema as clients send it; what makes two of them the same
- :mod:`~.registry`: the machine: subjects, versions, ids, levels and modes; decides on records, and applies them. Pure
- :mod:`~.records`: the records of ``_schemas``, as Confluent's registry writes them. Pure
- :mod:`~.avro_rules`: whether a schema of Avro is valid, and compatible with others. Pure
- :mod:`~.topic`: reads and appends the records
- :mod:`~.service`: one request after the other: check, decide, append, apply
- :mod:`~.api`: the paths, over HTTP

Schemas of Avro are checked by the rules of Avro's own library; those of JSON Schema and Protobuf are stored unchecked.
"""
