// What an application does with kafkajs: topics, records with keys and headers, a group, and what it committed.
//
// node talk.js <folder of kafkajs> <bootstrap servers> <topic and group> [<how to connect securely, as JSON>]
// Prints one object of JSON at the end.

const [folder, servers, name, security] = process.argv.slice(2)
const { CompressionTypes, Kafka, logLevel } = require(folder)

const COUNT = 100

async function main() {
  const given = JSON.parse(security || '{}')
  if (given.sasl && given.sasl.token) given.sasl.oauthBearerProvider = async () => ({ value: given.sasl.token })
  const kafka = new Kafka({ clientId: 'talk', brokers: servers.split(','), logLevel: logLevel.ERROR, ...given })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 3, configEntries: [{ name: 'retention.ms', value: '60000' }] }] })
  const metadata = await admin.fetchTopicMetadata({ topics: [name] })
  const cluster = await admin.describeCluster()

  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const messages = [...Array(COUNT).keys()].map(n => ({ key: `k${n}`, value: `v${n}`, headers: { number: `${n}` } }))
  await producer.send({ topic: name, messages: messages.slice(0, COUNT / 2) })
  await producer.send({ topic: name, messages: messages.slice(COUNT / 2), compression: CompressionTypes.GZIP })
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: name })
  await consumer.connect()
  await consumer.subscribe({ topics: [name], fromBeginning: true })
  const got = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer
      .run({
        eachMessage: async ({ message }) => {
          got.push([message.key, message.value, message.headers.number].map(String))
          if (got.length === COUNT) resolve()
        },
      })
      .catch(reject)
  })
  const { groups } = await admin.describeGroups([name])
  await consumer.disconnect() // commits what was read

  const offsets = await admin.fetchOffsets({ groupId: name, topics: [name] })
  const ends = await admin.fetchTopicOffsets(name)
  await admin.deleteGroups([name])
  await admin.deleteTopics({ topics: [name] })
  const topics = await admin.listTopics()
  await admin.disconnect()
  const result = {
    brokers: cluster.brokers.length,
    partitions: metadata.topics[0].partitions.map(one => one.partitionId).sort(),
    state: groups[0].state,
    members: groups[0].members.length,
    got,
    committed: offsets[0].partitions.reduce((sum, one) => sum + Number(one.offset), 0),
    written: ends.reduce((sum, one) => sum + Number(one.offset), 0),
    topics,
  }
  console.log(JSON.stringify(result))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
