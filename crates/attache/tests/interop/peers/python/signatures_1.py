"""Signatures of the SDK's 1.x: `verify URL` checks the card of a server, `sign ALG` signs one and prints it with its keys."""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWKSet
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

KINDS = {
    'ES256': (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    'EdDSA': (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm),
    'RS256': (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
}


async def verify(url):
    async with httpx.AsyncClient() as http:
        keys = PyJWKSet.from_dict((await http.get(f'{url}/.well-known/jwks.json')).json())
        card = await A2ACardResolver(http, url).get_agent_card()
    create_signature_verifier(lambda kid, jku: keys[kid], list(KINDS))(card)
    card.supported_interfaces[0].url = 'https://evil.example.com'
    try:
        create_signature_verifier(lambda kid, jku: keys[kid], list(KINDS))(card)
    except Exception:
        return 'good'
    return 'a forged card is good as well'


def sign(alg):
    make, kind = KINDS[alg]
    key = make()
    address = pb.AgentInterface(
        url='https://agents.example.com/a2a', protocol_binding='JSONRPC', protocol_version='1.0'
    )
    card = pb.AgentCard(
        name='Interop',
        # Dropped before it is signed, as is the empty example.
        description='',
        version='1',
        supported_interfaces=[address],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=['*/*'],
        skills=[pb.AgentSkill(id='Käse 🧀', name='x', description='x', tags=['x'], examples=['', 'x'])],
    )
    signer = create_agent_card_signer(key, {'alg': alg, 'kid': 'theirs', 'typ': 'JOSE'})
    jwk = {**kind.to_jwk(key.public_key(), as_dict=True), 'kid': 'theirs'}
    return json.dumps({'card': agent_card_to_dict(signer(card)), 'jwks': {'keys': [jwk]}})


if __name__ == '__main__':
    _, what, value = sys.argv
    print('result', asyncio.run(verify(value)) if what == 'verify' else sign(value))
