// Signatures of the SDK's 1.x: `verify URL` checks the card of a server, `sign ALG` signs one and prints it with its keys.

import { AgentCard, generateAgentCardSignature, verifyAgentCardSignature } from '@a2a-js/sdk';
import { DefaultAgentCardResolver } from '@a2a-js/sdk/client';
import * as jose from 'jose';

async function verify(url) {
  const { keys } = await (await fetch(`${url}/.well-known/jwks.json`)).json();
  const key = async (kid) => jose.importJWK(keys.find((key) => key.kid === kid));
  const card = await new DefaultAgentCardResolver().resolve(url);
  await verifyAgentCardSignature(key)(card);
  card.supportedInterfaces[0].url = 'https://evil.example.com';
  try {
    await verifyAgentCardSignature(key)(card);
  } catch {
    return 'good';
  }
  return 'a forged card is good as well';
}

async function sign(alg) {
  const { publicKey, privateKey } = await jose.generateKeyPair(alg, { extractable: true });
  const card = AgentCard.fromJSON({
    name: 'Interop',
    // Dropped before it is signed, as are the empty lists.
    description: '',
    version: '1',
    supportedInterfaces: [
      { url: 'https://agents.example.com/a2a', protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
    ],
    capabilities: { streaming: true, extensions: [{ uri: 'urn:x', params: { n: 1.0, deep: { list: [] } } }] },
    defaultInputModes: ['*/*'],
    defaultOutputModes: ['*/*'],
    skills: [{ id: 'Käse 🧀', name: 'x', description: 'x', tags: [], examples: ['', 'x'] }],
  });
  const signed = await generateAgentCardSignature(privateKey, { alg, kid: 'theirs', typ: 'JOSE' })(card);
  const jwk = { ...(await jose.exportJWK(publicKey)), kid: 'theirs' };
  return JSON.stringify({ card: AgentCard.toJSON(signed), jwks: { keys: [jwk] } });
}

const [what, value] = process.argv.slice(2);
console.log('result', what === 'verify' ? await verify(value) : await sign(value));
