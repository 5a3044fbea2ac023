import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'
import { ClientError, decoded, emit, encoded, main, now, versionOf } from './worker.js'

const { CompressionTypes, Kafka, logLevel } = kafkajs
const RETRY = { initialRetryTime: 100, maxRetryTime: 500, retries: 100 }
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

function login({ ca, mechanism, user, password }) {
  return {
    ssl: { ca: [readFileSync(ca)] },
    sasl: { mechanism: mechanism.toLowerCase(), username: user, password },
  }
}

/**
 * kafkajs has one assignor, round robin, under a name of its own, and no instance ids. Its generation it tells with its
 * heartbeats only, so a new assignment shows with the first of them; that it gives up its partitions it tells only where a
 * rebalance is the reason, and after any other it has them until its last Fetch.
 */
class Consumer {
  fetches = { sinceAssigned: 0, inAll: 0 }
  #settings
  #consumer
  #admin
  #kafka
  #membership = { generation: -1, memberId: '', partitions: [] }
  #joined = null
  #fetchedAt = 0

  constructor(settings) {
    this.#settings = settings
    this.#kafka = new Kafka({
      brokers: [settings.bootstrap],
      ...(settings.login === null ? {} : login(settings.login)),
      retry: RETRY,
      logLevel: logLevel.WARN,
      logCreator: () => ({ log }) => emit('notice', { text: `${log.message} ${log.error ?? ''}`, logger: 'kafkajs' }),
    })
    this.#admin = this.#kafka.admin()
    this.#consumer = this.#kafka.consumer({
      groupId: settings.group,
      sessionTimeout: settings.session_timeout_ms,
      heartbeatInterval: settings.heartbeat_interval_ms,
      rebalanceTimeout: settings.rebalance_timeout_ms,
      maxWaitTimeInMs: 250,
      retry: RETRY,
    })
    const { CRASH, FETCH, GROUP_JOIN, HEARTBEAT, REBALANCING } = this.#consumer.events
    this.#consumer.on(GROUP_JOIN, ({ payload }) => {
      this.#giveUp(this.#fetchedAt)
      const partitions = (payload.memberAssignment[settings.topic] ?? []).toSorted((a, b) => a - b)
      this.#joined = { memberId: payload.memberId, partitions }
      this.fetches.sinceAssigned = 0
      emit('assigned', { partitions })
    })
    this.#consumer.on(REBALANCING, () => this.#giveUp(now()))
    this.#consumer.on(HEARTBEAT, ({ payload }) => {
      if (this.#joined?.memberId === payload.memberId) {
        this.#membership = { generation: payload.groupGenerationId, ...this.#joined }
      }
    })
    // It starts itself again after some crashes; after others, a coordinator that is away among them, its user has to.
    this.#consumer.on(CRASH, async ({ payload }) => {
      if (!payload.restart) {
        await this.start()
      }
    })
    this.#consumer.on(FETCH, () => {
      this.#fetchedAt = now()
      this.fetches.sinceAssigned++
      this.fetches.inAll++
    })
  }

  async start() {
    await this.#admin.connect()
    await this.#consumer.connect()
    await this.#consumer.subscribe({ topic: this.#settings.topic, fromBeginning: true })
    await this.#consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
        if (this.#settings.records) {
          emit('records', {
            records: batch.messages.map(({ offset, key, value, headers }) => [
              batch.partition,
              BigInt(offset),
              [encoded(key), encoded(value), Object.entries(headers ?? {}).map(([name, each]) => [name, encoded(each)])],
            ]),
          })
        }
        resolveOffset(batch.lastOffset())
        await heartbeat()
      },
    })
  }

  membership() {
    return this.#membership
  }

  async highWatermarks(partitions) {
    const found = await this.#admin.fetchTopicOffsets(this.#settings.topic)
    const ours = found.filter(({ partition }) => partitions.includes(partition))
    return Object.fromEntries(ours.map(({ partition, high }) => [partition, BigInt(high)]))
  }

  async commit(offsets) {
    try {
      await this.#consumer.commitOffsets(
        offsets.map(({ partition, offset, metadata }) => ({
          topic: this.#settings.topic,
          partition,
          offset: offset.toString(),
          metadata,
        }))
      )
    } catch (error) {
      throw new ClientError(error.type ?? error.cause?.type ?? error.name, error.message)
    }
  }

  async readCommitted(partitions) {
    const [found] = await this.#admin.fetchOffsets({ groupId: this.#settings.group, topics: [this.#settings.topic] })
    return Object.fromEntries(
      found.partitions
        .filter(({ partition }) => partitions.includes(partition))
        .map(({ partition, offset, metadata }) => [partition, offset === '-1' ? null : [BigInt(offset), metadata ?? '']])
    )
  }

  async produce(records, compression) {
    const producer = this.#kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    try {
      await producer.send({
        topic: this.#settings.topic,
        compression: CODECS[compression],
        messages: records.map(([key, value, headers]) => ({
          key: decoded(key),
          value: decoded(value),
          headers: Object.fromEntries(headers.map(([name, each]) => [name, decoded(each)])),
        })),
      })
    } catch (error) {
      throw new ClientError(error.type ?? error.name, error.message)
    } finally {
      await producer.disconnect()
    }
  }

  async close() {
    await this.#consumer.disconnect()
    await this.#admin.disconnect()
  }

  #giveUp(at) {
    if (this.#joined !== null) {
      emit('revoked', { at, partitions: this.#joined.partitions })
      this.#joined = null
    }
  }
}

await main('kafkajs', versionOf('kafkajs'), settings => new Consumer(settings))
