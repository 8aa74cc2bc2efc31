"""A server of the package python-a2a, which is an application of Flask."""

from python_a2a import A2AServer, AgentCard, TaskState, TaskStatus
from python_a2a.server.http import create_flask_app
from werkzeug.serving import make_server

import peer


class Echo(A2AServer):
    def handle_task(self, task):
        content = (task.message or {}).get('content', {})
        parts = (task.message or {}).get('parts', [])
        text = content.get('text') or ' '.join(part.get('text', '') for part in parts)
        task.artifacts = [{'parts': [{'type': 'text', 'text': peer.answer([text])}]}]
        task.status = TaskStatus(state=TaskState.COMPLETED)
        return task


port = peer.free_port()
url = f'http://127.0.0.1:{port}'
agent = Echo(agent_card=AgentCard(name='Echo', description='Says what it was told', url=url, version='1'))
server = make_server('127.0.0.1', port, create_flask_app(agent), threaded=True)
peer.listening(url)
server.serve_forever()
