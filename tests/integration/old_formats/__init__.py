"""Old message formats against recorded answers of Apache Kafka."""
