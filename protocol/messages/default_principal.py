"""A principal as bytes, in Envelope requests (KIP-590); preceded by its version as an int16."""

from protocol.schema.message import Bool, Message, String, data, field


@data(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    type: String = field()
    name: String = field()
    token_authenticated: Bool = field()
