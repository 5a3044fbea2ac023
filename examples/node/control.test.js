import assert from 'node:assert/strict'
import { test } from 'node:test'
import kafkajs from 'kafkajs'
import { start } from './control.js'

/** Stands for your own code: a consumer. kafkajs has no instance ids, so its members are dynamic. */
async function startWorker(t, control, name) {
  const kafka = new kafkajs.Kafka({
    clientId: name,
    brokers: [control.bootstrapServers],
    requestTimeout: 1000,
    logLevel: kafkajs.logLevel.NOTHING,
  })
  const consumer = kafka.consumer({ groupId: 'workers', heartbeatInterval: 100, maxWaitTimeInMs: 100 })
  t.after(() => consumer.disconnect())
  await consumer.connect()
  await consumer.subscribe({ topic: 'orders' })
  await consumer.run({ autoCommit: false, eachMessage: async () => {} })
  return consumer
}

test('a restart of one worker costs two rebalances, and the others keep working', async t => {
  const control = await start(t)
  await control.ask('POST', '/v1/topics', { name: 'orders', partitions: 12 })
  const names = ['worker-0', 'worker-1', 'worker-2']
  const workers = await Promise.all(names.map(name => startWorker(t, control, name)))
  await control.group('workers', 'wait', { state: 'Stable', members: 3 })
  const { mark } = await control.group('workers', 'assert/at-rest')
  await workers[0].disconnect()
  await control.group('workers', 'wait', { state: 'Stable', members: 2 })
  await control.group('workers', 'assert/rebalances', { since: mark, exactly: 1, cause: 'member_left' })
  await startWorker(t, control, 'worker-0')
  await control.group('workers', 'wait', { state: 'Stable', members: 3 })
  await control.group('workers', 'assert/rebalances', { since: mark, exactly: 2 })
  await assert.rejects(control.group('workers', 'assert/no-rebalance', { since: mark }), {
    status: 409,
    message: /rebalanced 2 times, expected none[^]*member worker-0-\S+ leaves/,
  })
})

test('a rolling restart of static members causes no rebalance', async t => {
  const control = await start(t)
  const crew = await control.group('workers', 'fill', { count: 3 })
  await control.group('workers', 'wait', { state: 'Stable', members: 3 })
  const { mark } = await control.group('workers', 'assert/at-rest')
  for (let index = 0; index < 3; index++) {
    await control.ask('POST', `/v1/crews/${crew.id}/restart`, { index })
    await control.group('workers', 'wait', { restarts: index + 1, no_rebalance_since: mark })
  }
  await control.group('workers', 'assert/no-rebalance', { since: mark })
})

// kafkajs sends a request again on the same connection, where the coordinator still owes the first answer, until it gives
// up. So here the connection breaks too: drop-response alone would test its requestTimeout.
test('a commit whose answer is lost is committed', async t => {
  const control = await start(t)
  await control.ask('POST', '/v1/topics', { name: 'orders', partitions: 1 })
  const worker = await startWorker(t, control, 'worker-0')
  const { mark } = await control.group('workers', 'wait', { state: 'Stable', members: 1 })
  await control.ask('POST', '/v1/faults', { text: 'OffsetCommit client_id=worker-0 -> disconnect-after' })
  await worker.commitOffsets([{ topic: 'orders', partition: 0, offset: '7' }])
  const [fault] = await control.ask('GET', '/v1/faults')
  assert.equal(fault.fired, 1)
  const group = await control.group('workers', 'assert/no-rebalance', { since: mark })
  assert.deepEqual(group.committed, [{ topic: 'orders', partition: 0, offset: 7 }])
  await worker.disconnect()
  await control.ask('POST', '/v1/reset')
  assert.equal((await control.ask('GET', '/v1/groups/workers')).state, 'Dead')
})
