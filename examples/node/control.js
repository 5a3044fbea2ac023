// Starts a coordinator for a test, and asks it over HTTP: docs/test/other-languages.md has all operations.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

/**
 * A new coordinator, which ends with the test `t`. If TEST_CONTROL has the HOST:PORT of a running control, of a container
 * for example, it is that one, reset. TEST_TENURE has another command than `tenure`.
 */
export async function start(t) {
  const control = new Control(process.env.TEST_CONTROL || (await serve(t)))
  const { bootstrap_servers } = await control.ask('POST', '/v1/reset')
  control.bootstrapServers = bootstrap_servers
  return control
}

async function serve(t) {
  const [program, ...first] = (process.env.TEST_TENURE || 'tenure').split(' ')
  const options = ['serve', '--listen', '127.0.0.1:0', '--control', '127.0.0.1:0']
  const child = spawn(program, [...first, ...options], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(async () => {
    child.kill('SIGTERM')
    await once(child, 'exit')
  })
  const [ready] = await once(createInterface(child.stdout), 'line')
  return ready.match(/ control=(\S+)/)[1]
}

class Control {
  constructor(address) {
    this.base = `http://${address}`
  }

  /** The answer to a request, JSON; an error in the coordinator's words if the status is not 200. */
  async ask(method, path, fields) {
    const answer = await fetch(this.base + path, {
      method,
      body: fields && JSON.stringify(fields),
      headers: { authorization: `Bearer ${process.env.TEST_CONTROL_TOKEN ?? ''}` },
    })
    const found = await answer.json()
    if (!answer.ok) {
      throw Object.assign(new Error(found.error), { status: answer.status })
    }
    return found
  }

  /** A POST about a group, which answers with the group. operation: such as wait, or assert/no-rebalance. */
  group(name, operation, fields) {
    return this.ask('POST', `/v1/groups/${encodeURIComponent(name)}/${operation}`, fields)
  }
}
