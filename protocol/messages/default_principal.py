"""default_principal (api None)."""

from protocol.schema import Bool, Message, String, data, field


@data(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    type: String = field()
    name: String = field()
    token_authenticated: Bool = field()
