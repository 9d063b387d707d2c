// SPDX-License-Identifier: Apache-2.0
// Golden vectors of RecordBatch v2 from an implementation that is not FlashQ's: see ../README.md.
//   node generate.js theirs   kafkajs encodes: ../vectors/kafkajs/*.bin, ../vectors/kafkajs.json
//   node generate.js ours     kafkajs decodes ../vectors/flashq/*.bin into ../vectors/flashq.json
'use strict'
const fs = require('fs')
const path = require('path')
const Long = require('kafkajs/src/utils/long')
const Encoder = require('kafkajs/src/protocol/encoder')
const Decoder = require('kafkajs/src/protocol/decoder')
const Record = require('kafkajs/src/protocol/recordBatch/record/v0')
const Header = require('kafkajs/src/protocol/recordBatch/header/v0')
const { RecordBatch } = require('kafkajs/src/protocol/recordBatch/v0')
const decodeBatch = require('kafkajs/src/protocol/recordBatch/v0/decoder')
const crc32C = require('kafkajs/src/protocol/recordBatch/crc32C')
const { Types, Codecs } = require('kafkajs/src/protocol/message/compression')
const lz4 = require('lz4js')
const fzstd = require('fzstd')
const { ZstdCodec } = require('zstd-codec')

const VECTORS = path.join(__dirname, '..', 'vectors')

function installCodecs(zstd) {
  Codecs[Types.LZ4] = () => ({
    compress: encoder => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: buffer => Buffer.from(lz4.decompress(buffer)),
  })
  Codecs[Types.ZSTD] = () => ({
    compress: encoder => Buffer.from(new zstd.Simple().compress(encoder.buffer, 3)),
    decompress: buffer => Buffer.from(fzstd.decompress(buffer)),
  })
}

// Bytes as hex digits; a long run of one byte as "61*9000".
function hex(bytes) {
  if (bytes == null) {
    return null
  }
  const buffer = Buffer.from(bytes)
  return buffer.length > 64 && buffer.every(byte => byte === buffer[0])
    ? buffer.toString('hex', 0, 1) + '*' + buffer.length
    : buffer.toString('hex')
}

// ---- theirs -------------------------------------------------------------------------------------

// kafkajs' Record cannot size a null header value, so the record is put together here from its Encoder
// and its Header.
function encodeRecord(record, offsetDelta, timestampDelta) {
  if (!record.headers.some(header => header[1] === null)) {
    const grouped = {}
    for (const [name, value] of record.headers) {
      grouped[name] = (grouped[name] || []).concat([value])
    }
    return Record({ offsetDelta, timestampDelta, key: record.key, value: record.value, headers: grouped })
  }
  const body = new Encoder()
    .writeInt8(0)
    .writeVarLong(timestampDelta)
    .writeVarInt(offsetDelta)
    .writeVarIntBytes(record.key)
    .writeVarIntBytes(record.value)
    .writeVarIntArray(record.headers.map(([key, value]) => Header({ key, value })))
  return new Encoder().writeVarInt(body.size()).writeEncoder(body)
}

const record = (timestamp, key, value, headers = []) => ({ timestamp: BigInt(timestamp), key, value, headers })
const bytes = (...values) => Buffer.from(values)
const NOW = 1764500000000n

function theirVectors() {
  const kinds = [null, Buffer.alloc(0), Buffer.from('x')]
  const nulls = kinds.flatMap(key => kinds.map(value => record(NOW, key, value)))
  const all = bytes(...Array.from({ length: 256 }, (_, i) => i))
  const sizes = [0, 1, 63, 64, 127, 128, 8191, 8192]
  const text = Array.from({ length: 40 }, (_, i) =>
    record(NOW + BigInt(i * 7), Buffer.from('key-' + (i % 4)), Buffer.from('a line of text, number ' + i)))
  return [
    { name: 'one_record', records: [record(NOW, Buffer.from('key'), Buffer.from('value'))] },
    { name: 'null_and_empty', records: nulls },
    { name: 'binary', records: [record(0, all, all, [['all', all]])] },
    { name: 'headers', records: [
      record(NOW, null, Buffer.from('v'), [['a', Buffer.from('1')], ['a', Buffer.from('2')],
        ['a', Buffer.alloc(0)], ['b', bytes(0, 0, 1)], ['n\0l', Buffer.from('x')], ['', Buffer.from('no name')],
        ['\u00fc', Buffer.from('utf-8')]]),
      record(NOW, Buffer.from('k'), null, Array.from({ length: 300 }, (_, i) => ['h' + i, Buffer.from('' + i)])),
    ] },
    { name: 'headers_null', records: [
      record(NOW, null, null, [['a', null], ['b', Buffer.from('x')], ['a', Buffer.alloc(0)], ['a', null]]),
    ] },
    { name: 'timestamps_back', records: [record(NOW, null, Buffer.from('1')), record(NOW - 1n, null, Buffer.from('2')),
      record(NOW - 86400000n, null, Buffer.from('3')), record(0, null, Buffer.from('4'))] },
    { name: 'timestamps_far', records: [record(0, null, null), record((1n << 31n) - 1n, null, null),
      record(1n << 31n, null, null), record(1n << 40n, null, null), record((1n << 62n) + 12345n, null, null)] },
    { name: 'producer', producerId: (1n << 62n) + 987654321n, producerEpoch: 32767, firstSequence: 2147483647,
      firstOffset: (1n << 53n) + 1n, leaderEpoch: 77,
      records: [record(NOW, null, Buffer.from('v')), record(NOW + 5n, null, Buffer.from('w'))] },
    { name: 'sizes', records: sizes.map(size => record(NOW, Buffer.alloc(size, 'k'), Buffer.alloc(size, 'v'))) },
    { name: 'many', records: Array.from({ length: 200 }, (_, i) => record(NOW + BigInt(i), null, Buffer.from('' + i))) },
    { name: 'lz4', codec: Types.LZ4, records: text },
    { name: 'lz4_one', codec: Types.LZ4, records: [record(NOW, null, Buffer.from('x'))] },
    { name: 'lz4_large', codec: Types.LZ4, records: Array.from({ length: 20 }, (_, i) => record(NOW, null, Buffer.alloc(9000, 97 + i))) },
    { name: 'zstd', codec: Types.ZSTD, records: text },
    { name: 'zstd_one', codec: Types.ZSTD, records: [record(NOW, null, null)] },
    { name: 'zstd_large', codec: Types.ZSTD, records: Array.from({ length: 20 }, (_, i) => record(NOW, null, Buffer.alloc(9000, 97 + i))) },
    { name: 'gzip', codec: Types.GZIP, records: text },
  ]
}

async function encodeBatch(vector) {
  const { records, codec = Types.None, firstOffset = 0n, leaderEpoch = -1, producerId = -1n,
    producerEpoch = -1, firstSequence = -1 } = vector
  const first = records[0].timestamp
  const max = records.reduce((most, r) => (r.timestamp > most ? r.timestamp : most), first)
  const long = value => Long.fromValue(value.toString())
  const encoded = records.map((r, i) => encodeRecord(r, i, long(r.timestamp - first)))
  const batch = await RecordBatch({
    compression: codec, firstOffset: long(firstOffset), firstTimestamp: long(first), maxTimestamp: long(max),
    partitionLeaderEpoch: leaderEpoch, lastOffsetDelta: records.length - 1, producerId: long(producerId),
    producerEpoch, firstSequence, records: encoded,
  })
  const description = {
    name: vector.name, codec, baseOffset: firstOffset.toString(), leaderEpoch, producerId: producerId.toString(),
    producerEpoch, baseSequence: firstSequence, baseTimestamp: first.toString(), maxTimestamp: max.toString(),
    records: records.map(r => ({ timestamp: r.timestamp.toString(), key: hex(r.key), value: hex(r.value),
      headers: r.headers.map(([name, value]) => [hex(Buffer.from(name)), hex(value)]) })),
  }
  return { bytes: batch.buffer, description }
}

async function theirs() {
  const descriptions = []
  for (const vector of theirVectors()) {
    const { bytes: made, description } = await encodeBatch(vector)
    fs.writeFileSync(path.join(VECTORS, 'kafkajs', vector.name + '.bin'), made)
    descriptions.push(description)
  }
  writeJson('kafkajs.json', descriptions)
}

// ---- ours ---------------------------------------------------------------------------------------

async function ours() {
  const descriptions = []
  for (const file of fs.readdirSync(path.join(VECTORS, 'flashq')).sort()) {
    const made = fs.readFileSync(path.join(VECTORS, 'flashq', file))
    const decoder = new Decoder(made)
    const batch = await decodeBatch(decoder)
    if (decoder.offset !== made.length) {
      throw new Error(`${file}: kafkajs read ${decoder.offset} of ${made.length} bytes`)
    }
    if (crc32C(made.subarray(21)) >>> 0 !== made.readUInt32BE(17)) {
      throw new Error(`${file}: kafkajs computes another CRC`)
    }
    descriptions.push({
      name: path.basename(file, '.bin'), codec: made.readInt16BE(21) & 7, baseOffset: batch.firstOffset,
      leaderEpoch: batch.partitionLeaderEpoch, producerId: batch.producerId, producerEpoch: batch.producerEpoch,
      baseSequence: batch.firstSequence, baseTimestamp: batch.firstTimestamp, maxTimestamp: batch.maxTimestamp,
      lastOffsetDelta: batch.lastOffsetDelta,
      // kafkajs groups the headers of a record by name
      records: batch.records.map(r => ({ timestamp: r.timestamp, offset: r.offset, key: hex(r.key),
        value: hex(r.value), headers: Object.fromEntries(Object.entries(r.headers).map(([name, values]) =>
          [hex(Buffer.from(name)), (Array.isArray(values) ? values : [values]).map(hex)])) })),
    })
  }
  writeJson('flashq.json', descriptions)
}

// One line a record: readable, and small in diffs.
function writeJson(name, descriptions) {
  const lines = descriptions.map(({ records, ...rest }) => JSON.stringify(rest).slice(0, -1) +
    ',"records":[\n  ' + records.map(r => JSON.stringify(r)).join(',\n  ') + '\n]}')
  fs.writeFileSync(path.join(VECTORS, name), '[\n' + lines.join(',\n') + '\n]\n')
}

ZstdCodec.run(zstd => {
  installCodecs(zstd)
  const run = { theirs, ours }[process.argv[2]]
  if (!run) {
    console.error('usage: node generate.js theirs|ours')
    process.exit(2)
  }
  run().catch(error => {
    console.error(error)
    process.exit(1)
  })
})
