import { readFileSync } from 'node:fs'
import { Consumer, ProduceAcks, Producer } from '@platformatic/kafka'
import { ClientError, decoded, emit, encoded, main, versionOf } from './worker.js'

const RETRY = { retries: 100, retryDelay: 250, connectTimeout: 5000 }

function login({ ca, mechanism, user, password }) {
  return { tls: { ca: [readFileSync(ca)] }, sasl: { mechanism, username: user, password } }
}

/**
 * @platformatic/kafka has one assignor, round robin. It leaves its group when it closes, with an instance id or not, and
 * commits carry neither metadata nor an instance id.
 */
class Worker {
  fetches = { sinceAssigned: 0, inAll: 0 }
  #settings
  #consumer
  #stream
  #owned = []
  #isClosing = false
  #isClassic

  constructor(settings) {
    this.#settings = settings
    this.#isClassic = settings.protocol === 'classic'
    this.#consumer = new Consumer({
      clientId: 'worker',
      groupId: settings.group,
      bootstrapBrokers: [settings.bootstrap],
      ...(settings.group_instance_id === null ? {} : { groupInstanceId: settings.group_instance_id }),
      sessionTimeout: settings.session_timeout_ms,
      heartbeatInterval: settings.heartbeat_interval_ms,
      rebalanceTimeout: settings.rebalance_timeout_ms,
      ...(this.#isClassic ? {} : { groupProtocol: 'consumer' }),
      autocommit: false,
      ...(settings.login === null ? {} : login(settings.login)),
      ...RETRY,
    })
    if (this.#isClassic) {
      this.#consumer.on('consumer:group:join', ({ assignments }) => {
        this.#take([])
        this.#take(this.#partitionsOf(assignments))
      })
      this.#consumer.on('consumer:group:rebalance', () => this.#take([]))
    } else {
      this.#watchAssignments()
    }
    this.#consumer.on('consumer:heartbeat:error', ({ error }) => notice(error))
    this.#consumer.on('error', notice)
  }

  async start() {
    this.#stream = await this.#consumer.consume({
      topics: [this.#settings.topic],
      maxWaitTime: 250,
      mode: 'committed',
      fallbackMode: 'earliest',
    })
    this.#stream.on('fetch', () => {
      this.fetches.sinceAssigned++
      this.fetches.inAll++
    })
    this.#stream.on('error', error => {
      if (this.#isClosing) return notice(error) // a fetch that it had begun finds that the client is closed
      emit('fatal', { error: nameOf(error), text: error.message })
      process.exit(1)
    })
    this.#stream.on('data', ({ partition, offset, key, value, headers }) => {
      if (this.#settings.records) {
        const named = [...(headers ?? [])].map(([name, each]) => [name.toString(), encoded(each)])
        emit('records', { records: [[partition, offset, [encoded(key), encoded(value), named]]] })
      }
    })
  }

  membership() {
    const { generationId, memberId } = this.#consumer
    if (!this.#isClassic) {
      // Its epoch is private: 1 stands for any.
      return { generation: this.#owned.length ? 1 : -1, memberId: memberId ?? '', partitions: this.#owned }
    }
    return { generation: memberId ? generationId : -1, memberId: memberId ?? '', partitions: this.#owned }
  }

  async highWatermarks(partitions) {
    const found = await this.#consumer.listOffsets({ topics: [this.#settings.topic] })
    return Object.fromEntries(partitions.map(partition => [partition, found.get(this.#settings.topic)[partition]]))
  }

  async commit(offsets) {
    try {
      await this.#consumer.commit({
        offsets: offsets.map(({ partition, offset }) => ({
          topic: this.#settings.topic,
          partition,
          offset,
          leaderEpoch: -1,
        })),
      })
    } catch (error) {
      throw new ClientError(nameOf(error), error.message)
    }
  }

  async readCommitted(partitions) {
    const found = await this.#consumer.listCommittedOffsets({ topics: [{ topic: this.#settings.topic, partitions }] })
    const offsets = found.get(this.#settings.topic)
    return Object.fromEntries(
      partitions.map(partition => [partition, offsets[partition] === -1n ? null : [offsets[partition], '']])
    )
  }

  async produce(records, compression) {
    const producer = new Producer({
      clientId: 'producer',
      bootstrapBrokers: [this.#settings.bootstrap],
      idempotent: true,
      ...RETRY,
    })
    try {
      await producer.send({
        acks: ProduceAcks.ALL,
        compression,
        messages: records.map(([key, value, headers]) => ({
          topic: this.#settings.topic,
          key: decoded(key),
          value: decoded(value),
          headers: new Map(headers.map(([name, each]) => [Buffer.from(name), decoded(each)])),
        })),
      })
    } catch (error) {
      throw new ClientError(nameOf(error), error.message)
    } finally {
      await producer.close()
    }
  }

  async close() {
    this.#isClosing = true
    await this.#consumer.close(true)
  }

  /** With the consumer protocol it has no event for an assignment: it sets this property, then sends a heartbeat. */
  #watchAssignments() {
    let assignments = this.#consumer.assignments
    Object.defineProperty(this.#consumer, 'assignments', {
      get: () => assignments,
      set: changed => {
        assignments = changed
        this.#take(this.#partitionsOf(changed ?? []))
      },
    })
  }

  #partitionsOf(assignments) {
    const found = assignments.find(({ topic }) => topic === this.#settings.topic)
    return (found?.partitions ?? []).toSorted((a, b) => a - b)
  }

  #take(partitions) {
    const gone = this.#owned.filter(each => !partitions.includes(each))
    const added = partitions.filter(each => !this.#owned.includes(each))
    this.#owned = partitions
    if (gone.length > 0) {
      emit('revoked', { partitions: gone })
    }
    if (added.length > 0) {
      this.fetches.sinceAssigned = 0
      emit('assigned', { partitions: added })
    }
  }
}

/** Kafka's name of an error, which may be the reason of the reason of the one that is thrown. */
function nameOf(error) {
  const known = error.findBy?.('code', 'PLT_KFK_PROTOCOL')
  return known?.apiId ?? error.code ?? error.name
}

function notice(error) {
  emit('notice', { text: `${nameOf(error)}: ${error.message}`, logger: '@platformatic/kafka' })
}

await main('@platformatic/kafka', versionOf('@platformatic/kafka'), settings => new Worker(settings))
