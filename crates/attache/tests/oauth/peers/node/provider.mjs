// An authorization server on a free port, with three clients: a program that has a secret, a laptop that has none, and the agent
// that asks whether a token is good. It says where it is.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const server = createServer((request, response) => callback(request, response));
let callback;

server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const everybody = async () => true;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'program',
        client_secret: 'secret of the program',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        scope: 'ask',
      },
      {
        client_id: 'laptop',
        application_type: 'native',
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
        redirect_uris: ['http://127.0.0.1/callback'],
        response_types: ['code'],
      },
      {
        client_id: 'agent',
        client_secret: 'secret of the agent',
        grant_types: [],
        redirect_uris: [],
        response_types: [],
      },
    ],
    cookies: { keys: ['a key for the cookies of a test'] },
    features: {
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      devInteractions: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: async () => ({ scope: 'ask', accessTokenFormat: 'opaque' }),
        useGrantedResource: everybody,
      },
      introspection: { enabled: true, allowedPolicy: everybody },
      revocation: { enabled: true, allowedPolicy: everybody },
    },
    rotateRefreshToken: true,
    scopes: ['openid', 'offline_access', 'ask'],
    ttl: { AccessToken: 600, ClientCredentials: 600, DeviceCode: 600, Grant: 3600, Session: 3600, Interaction: 600 },
  });
  for (const event of ['grant.error', 'authorization.error', 'server_error']) {
    provider.on(event, (_, error) => console.error(`${event}: ${error.message} ${error.error_description ?? error.stack}`));
  }
  callback = provider.callback();
  console.log(`issuer ${issuer}`);
});
