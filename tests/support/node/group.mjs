// Writes records with @platformatic/kafka, and reads them in a group: BOOTSTRAP PROTOCOL TOPIC COUNT. Prints how many it has read, and how many of
// them are different.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

// The package is in a folder of its own, which NODE_PATH names: imports of modules do not look there.
const { resolve } = createRequire(process.env.NODE_PATH + '/')
const { Consumer, Producer, stringDeserializers, stringSerializers } = await import(pathToFileURL(resolve('@platformatic/kafka')))

const [bootstrap, protocol, topic, count] = process.argv.slice(2)
const messages = Array.from({ length: Number(count) }, (_, number) => ({ topic, key: `k${number}`, value: `v${number}` }))
const producer = new Producer({ clientId: 'writer', bootstrapBrokers: [bootstrap], serializers: stringSerializers, autocreateTopics: true })
await producer.send({ messages, acks: -1 })
await producer.close()

const consumer = new Consumer({
  groupId: topic,
  clientId: 'reader',
  bootstrapBrokers: [bootstrap],
  deserializers: stringDeserializers,
  ...(protocol === 'consumer' ? { groupProtocol: protocol } : {})
})
const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false, sessionTimeout: 10_000, heartbeatInterval: 500 })
const values = []
for await (const message of stream) {
  values.push(message.value)
  await message.commit()
  if (values.length === messages.length) {
    break
  }
}
await stream.close()
await consumer.close(true)
console.log(values.length, new Set(values).size)
