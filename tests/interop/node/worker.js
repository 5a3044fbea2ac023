// A consumer process on a client written in JavaScript: kafkajs or @platformatic/kafka.
//
// It speaks the JSON lines of ../worker.py, which says what each of them means: commands on standard input, events on
// standard output. Both clients poll by themselves; the loop here looks at them every few milliseconds. What differs
// stands in kafkajs.js and platformatic.js.
//
// Offsets are BigInt, for JSON's numbers in JavaScript end at 2^53.
//
// House rule: ../worker.py's.

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { readFileSync } from 'node:fs'

const TICK_MS = 50
const REPORT_INTERVAL_MS = 250

/** An error under Kafka's name for it. */
export class ClientError extends Error {
  constructor(name, text) {
    super(text)
    this.name = name
  }
}

/** The machine's monotonic clock in seconds. */
export const now = () => Number(process.hrtime.bigint()) / 1e9

/** Print one event; `at` is now, unless the fields say otherwise. */
export function emit(event, fields = {}) {
  const line = JSON.stringify({ event, at: now(), ...fields }, (_, value) => (typeof value === 'bigint' ? `bigint:${value}` : value))
  process.stdout.write(`${line.replace(/"bigint:(-?\d+)"/g, '$1')}\n`)
}

/** Bytes in base64, or null. */
export const encoded = bytes => (bytes == null ? null : Buffer.from(bytes).toString('base64'))

/** The inverse. */
export const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))

/** The version of an installed package. */
export const versionOf = name =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version

/** A command; what is too large for a number of JavaScript stays text. */
const parsed = line => JSON.parse(line.replace(/(?<=\[)\d{16,}(?=, )/g, '"$&"'))

function readCommands() {
  const commands = []
  createInterface({ input: process.stdin })
    .on('line', line => commands.push(parsed(line)))
    .on('close', () => process.exit(1))
  return commands
}

async function obey(command, consumer) {
  switch (command.do) {
    case 'commit': {
      const offsets = Object.entries(command.offsets).map(([partition, [offset, metadata]]) => ({
        partition: Number(partition),
        offset: BigInt(offset),
        metadata,
      }))
      try {
        await consumer.commit(offsets)
        emit('committed', { generation: consumer.membership().generation, offsets: command.offsets })
      } catch (error) {
        emit('commit_failed', { error: error.name, text: error.message })
      }
      break
    }
    case 'read_committed':
      emit('read_committed', { offsets: await consumer.readCommitted(command.partitions) })
      break
    case 'produce':
      try {
        await consumer.produce(command.records, command.compression)
        emit('produced', { count: command.records.length })
      } catch (error) {
        emit('produce_failed', { error: error.name, text: error.message })
      }
      break
    default:
      throw new Error(`no such command: ${command.do}`)
  }
}

/**
 * Run a worker to its end. A consumer has start, membership, fetches (how many were answered since the last assignment,
 * and in all), highWatermarks, commit, readCommitted, produce and close; it reports what it consumes itself.
 */
export async function main(client, version, makeConsumer) {
  const settings = JSON.parse(process.argv[2])
  const commands = readCommands()
  emit('started', { client, version, pid: process.pid })
  const consumer = makeConsumer(settings)
  try {
    await consumer.start()
  } catch (error) {
    emit('fatal', { error: error.name, text: error.message })
    process.exit(1)
  }
  let last = ''
  let fetched = false
  let fetches = 0
  let reported = 0
  for (;;) {
    const { generation, memberId, partitions } = consumer.membership()
    const seen = JSON.stringify([generation, memberId, partitions])
    if (seen !== last) {
      last = seen
      fetched = false
      emit('membership', { generation, member_id: memberId, partitions })
    }
    if (!fetched && partitions.length > 0 && consumer.fetches.sinceAssigned > 0) {
      fetched = true
      emit('fetched', { high_watermarks: await consumer.highWatermarks(partitions) })
    }
    if (consumer.fetches.inAll > fetches && Date.now() - reported >= REPORT_INTERVAL_MS) {
      reported = Date.now()
      fetches = consumer.fetches.inAll
      emit('polled')
    }
    while (commands.length > 0) {
      const command = commands.shift()
      if (command.do === 'close') {
        emit('closing')
        await consumer.close()
        emit('closed')
        process.stdout.write('', () => process.exit(0))
        return
      }
      await obey(command, consumer)
    }
    await sleep(TICK_MS)
  }
}
