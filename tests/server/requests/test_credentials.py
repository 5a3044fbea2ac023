"""Requests of SASL where none is due, and those about credentials."""

from __future__ import annotations

from protocol.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from schemas.errors import ErrorCode
from tests.server.harness import serving


async def test_sasl_on_a_listener_without_it() -> None:
    """Both requests are refused, and the connection goes on."""
    async with serving() as server:
        peer = await server.peer()
        for version in (0, 1):
            answer = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        for version in (0, 1, 2):
            answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert (await peer.ask(MetadataRequest(topics=[]), 4)).brokers
