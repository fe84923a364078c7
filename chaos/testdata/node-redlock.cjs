// A process that locks with node-redlock, for foreign_node_test.go.
//
// The only argument is a JSON object: nodes (addresses), ioredis and settings (options of the two libraries). Each line of
// stdin is a command, {"id", "do", ...}. Each gets a line on stdout with its id: what the command has returned, or "error".
// The first line says what runs here.
'use strict'

const { once } = require('node:events')
const { existsSync } = require('node:fs')
const { dirname, join } = require('node:path')
const readline = require('node:readline')
const Redis = require('ioredis')
const { default: Redlock } = require('redlock')

const config = JSON.parse(process.argv[2])
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

const clients = config.nodes.map((address) => {
  const [host, port] = address.split(':')
  const client = new Redis({ host, port: Number(port), retryStrategy: () => 100, ...config.ioredis })
  client.on('error', () => {}) // a dead node; redlock counts it
  return client
})
const redlock = new Redlock(clients, config.settings)
const locks = new Map() // by id; of using, what ends its routine

const commands = {
  async acquire({ id, name, duration }) {
    const lock = await redlock.acquire([name], duration)
    locks.set(id, lock)
    return { value: lock.value, attempts: lock.attempts.length }
  },
  // The caller may rely on the lock for so many milliseconds from a moment before it has sent this command.
  async left({ id }) {
    return { left: locks.get(id).expiration - Date.now() }
  },
  async extend({ id, duration }) {
    locks.set(id, await locks.get(id).extend(duration))
    return {}
  },
  async release({ id }) {
    const lock = locks.get(id)
    locks.delete(id)
    await lock.release()
    return {}
  },
  // using answers when its routine has begun. The command "leave" ends the routine, and answers when using has returned.
  async using({ id, name, duration }) {
    await new Promise((begun, failed) => {
      const using = redlock.using([name], duration, (signal) => new Promise((leave) => {
        locks.set(id, { leave, using, signal })
        begun()
      }))
      using.catch(failed)
    })
    return {}
  },
  async leave({ id }) {
    const { leave, using, signal } = locks.get(id)
    locks.delete(id)
    const { aborted } = signal // later it may be aborted by an extension of the lock that is released
    leave()
    await using
    return { aborted }
  },
}

// versionOf returns the version of the module that require has loaded.
function versionOf(name) {
  for (let dir = dirname(require.resolve(name)); dir !== dirname(dir); dir = dirname(dir)) {
    const path = join(dir, 'package.json')
    const is = existsSync(path) ? require(path) : {}
    if (is.name === name) return is.version
  }
}

async function main() {
  await Promise.all(clients.map((client) => once(client, 'ready')))
  say({
    redlock: versionOf('redlock'),
    ioredis: versionOf('ioredis'),
    node: process.version,
    settings: redlock.settings,
  })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    commands[command.do](command).then(
      (reply) => say({ id: command.id, ...reply }),
      (error) => say({ id: command.id, error: `${error.name}: ${error.message}`, attempts: error.attempts?.length }),
    )
  }
  process.exit(0) // the test has closed stdin
}

main()
