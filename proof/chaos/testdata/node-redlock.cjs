// A process that locks with node-redlock, for foreign_node_test.go.
//
// The only argument is a JSON object: nodes (addresses), ioredis and settings (options of the two libraries). Each line of
// stdin is a command, {"ID", "Do", ...}. Each gets a line on stdout with its id: what the command has returned, or "error".
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
const locks = new Map() // by id

const commands = {
  async acquire({ id, name, duration }) {
    const lock = await redlock.acquire([name], duration)
    locks.set(id, lock)
    return {}
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
    const { ID: id, Do, Name: name, Duration: duration } = JSON.parse(line)
    commands[Do]({ id, name, duration }).then(
      (reply) => say({ id, ...reply }),
      (error) => say({ id, error: `${error.name}: ${error.message}` }),
    )
  }
  process.exit(0) // the test has closed stdin
}

main()
