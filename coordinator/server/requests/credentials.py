"""Requests of SASL that come where none has to come.

Those of clients that have to authenticate come to `wire.authentication`. These here come from others: of a listener
without SASL, or after they authenticated. Kafka refuses them too, and leaves the connection open.

House rule: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.server.wire.call import Call, Services
    from protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest


def handshake(services: Services, call: Call, request: SaslHandshakeRequest) -> None:  # noqa: ARG001 - as all handlers
    """SaslHandshake: there is nothing to authenticate for."""
    call.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def authenticate(services: Services, call: Call, request: SaslAuthenticateRequest) -> None:  # noqa: ARG001 - as above
    """SaslAuthenticate: as SaslHandshake."""
    text = "SaslAuthenticate request received after successful authentication"
    call.answer(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text))
