"""Bad input at listeners with TLS, with SASL, and with both."""
