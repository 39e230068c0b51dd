"""Runs Apache Kafka's own integration tests with Ottla in place of the server: `make apache-suite`.

The tests come from Apache Kafka's published test jar. They run in a JVM, with their own ZooKeeper and clients. The sources in `stand_in`
replace the server that a test starts by a process of Ottla. `suite.toml` lists the classes, and every test that cannot pass.
"""
