#include "common/wire/grpc/chunk_message.h"

#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "protos/parameter_server.pb.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string all;
  for (const auto& slice : slices) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return all;
}

// Cuts the bytes into slices of the given sizes, used in turn. Each slice has separate memory.
grpc::ByteBuffer Split(const std::string& bytes, const std::vector<size_t>& sizes) {
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (size_t i = 0; begin < bytes.size(); ++i) {
    const size_t size = std::min(sizes[i % sizes.size()], bytes.size() - begin);
    slices.emplace_back(bytes.data() + begin, size);
    begin += size;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer Whole(const std::string& bytes) { return Split(bytes, {bytes.size() + 1}); }

ps::PushChunk Header() {
  ps::PushChunk header;
  header.mutable_key()->set_run_id("0123456789abcdef");
  header.mutable_key()->set_epoch(3);
  header.mutable_key()->set_step(1234567);
  header.mutable_key()->set_replica(2);
  header.set_shard(1);
  header.set_chunk(300);
  header.set_crc32c(0xdeadbeef);
  header.mutable_commit()->set_samples(31);
  auto* metric = header.mutable_commit()->add_metrics();
  metric->set_name("Loss/total_loss");
  metric->set_value(1.5);
  return header;
}

// Calls ParseChunkInto with memory of exactly the right size. Returns the payload.
absl::StatusOr<std::string> DecodeInto(const grpc::ByteBuffer& buffer, ps::PushChunk* header) {
  std::vector<char> bytes;
  int places = 0;
  const auto crc = ParseChunkInto(buffer, header, [&](size_t size) -> absl::StatusOr<char*> {
    ++places;
    bytes.resize(size);
    return bytes.data();
  });
  EXPECT_EQ(places, crc.ok() ? 1 : 0);
  if (!crc.ok()) return crc.status();
  EXPECT_EQ(*crc, Crc32c(bytes.data(), bytes.size()));
  return std::string(bytes.begin(), bytes.end());
}

TEST(ChunkMessageTest, EncodesTheSameBytesAsProtobuf) {
  for (size_t size : {0, 1, 4, 127, 128, 4096, 1 << 20}) {
    const Payload payload = MakePayload(size, 1);
    ps::PushChunk plain = Header();
    plain.set_payload(ToString(payload));
    EXPECT_EQ(Flatten(SerializeChunk(Header(), payload)), plain.SerializeAsString()) << size;
  }
  ps::PullChunk pull;
  pull.set_version(9);
  const Payload payload = MakePayload(1000, 2);
  const std::string bytes = Flatten(SerializeChunk(pull, payload));
  ps::PullChunk parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.version(), 9);
  EXPECT_EQ(parsed.payload(), ToString(payload));
}

TEST(ChunkMessageTest, EncodingDoesNotCopyThePayload) {
  const Payload payload = MakePayload(1 << 16, 3);
  const long owners = payload.owner.use_count();
  {
    const grpc::ByteBuffer buffer = SerializeChunk(Header(), payload);
    EXPECT_EQ(payload.owner.use_count(), owners + 1);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2);
    EXPECT_EQ(reinterpret_cast<const char*>(slices[1].begin()), payload.data);
  }
  EXPECT_EQ(payload.owner.use_count(), owners);
}

TEST(ChunkMessageTest, DecodesProtobufInAnySlicing) {
  ps::PushChunk plain = Header();
  plain.set_payload(ToString(MakePayload(5000, 4)));
  const std::string bytes = plain.SerializeAsString();
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{
           {1}, {2}, {7}, {bytes.size()}, {100, 1, 3}, {60, 4000}, {bytes.size() - 1}}) {
    ps::PushChunk header;
    Payload payload;
    ASSERT_TRUE(ParseChunk(Split(bytes, sizes), &header, &payload).ok());
    EXPECT_EQ(header.SerializeAsString(), Header().SerializeAsString());
    EXPECT_EQ(ToString(payload), plain.payload());
    ps::PushChunk same_header;
    EXPECT_EQ(DecodeInto(Split(bytes, sizes), &same_header).value_or("failed"), plain.payload());
    EXPECT_EQ(same_header.SerializeAsString(), Header().SerializeAsString());
  }
}

TEST(ChunkMessageTest, AsksForMemoryWithTheHeaderWhereverItStands) {
  ps::PushChunk after;
  after.set_chunk(7);
  const std::string bytes = "\x7a\x02ok" + after.SerializeAsString();
  ps::PushChunk header;
  char out[2];
  const auto crc = ParseChunkInto(Split(bytes, {1}), &header, [&](size_t size) {
    EXPECT_EQ(size, 2);
    EXPECT_EQ(header.chunk(), 7);
    return absl::StatusOr<char*>(out);
  });
  EXPECT_TRUE(crc.ok()) << crc.status();
  EXPECT_EQ(std::string(out, 2), "ok");
  const auto refused = ParseChunkInto(Whole(bytes), &header, [](size_t) {
    return absl::StatusOr<char*>(absl::AbortedError("no room"));
  });
  EXPECT_EQ(refused.status(), absl::AbortedError("no room"));
  EXPECT_EQ(DecodeInto(Whole(Header().SerializeAsString()), &header).value_or("failed"), "");
}

TEST(ChunkMessageTest, ReturnsTheChecksumOfGatheredBytes) {
  const Payload sent = MakePayload(300001, 9);
  const std::string bytes = Flatten(SerializeChunk(Header(), sent));
  for (const size_t piece_bytes : {1000, 65536, 70001, 200000}) {
    ps::PushChunk header;
    Payload payload;
    ASSERT_TRUE(ParseChunk(Split(bytes, {piece_bytes}), &header, &payload).ok());
    ASSERT_TRUE(payload.crc32c.has_value());
    EXPECT_EQ(*payload.crc32c, Crc32c(sent.data, sent.size_bytes)) << piece_bytes;
  }
  ps::PushChunk header;
  Payload shared;
  ASSERT_TRUE(ParseChunk(Whole(bytes), &header, &shared).ok());
  EXPECT_FALSE(shared.crc32c.has_value());
  EXPECT_EQ(Crc32cOf(shared), Crc32c(sent.data, sent.size_bytes));
}

TEST(ChunkMessageTest, DoesNotCopyASingleSlice) {
  const grpc::Slice slice(Flatten(SerializeChunk(Header(), MakePayload(70000, 5))));
  ps::PushChunk header;
  Payload payload;
  {
    const grpc::ByteBuffer buffer(&slice, 1);
    ASSERT_TRUE(ParseChunk(buffer, &header, &payload).ok());
  }
  EXPECT_EQ(payload.data + payload.size_bytes, reinterpret_cast<const char*>(slice.end()));
  EXPECT_EQ(ToString(payload), ToString(MakePayload(70000, 5)));
}

TEST(ChunkMessageTest, DoesNotCopyAdjacentSlices) {
  const grpc::Slice whole(Flatten(SerializeChunk(Header(), MakePayload(70000, 6))));
  const std::vector<grpc::Slice> pieces = {whole.sub(0, 20000), grpc::Slice(),
                                           whole.sub(20000, 20100), whole.sub(20100, whole.size())};
  ps::PushChunk header;
  Payload payload;
  ASSERT_TRUE(ParseChunk(grpc::ByteBuffer(pieces.data(), pieces.size()), &header, &payload).ok());
  EXPECT_EQ(payload.data + payload.size_bytes, reinterpret_cast<const char*>(whole.end()));
  EXPECT_EQ(ToString(payload), ToString(MakePayload(70000, 6)));
}

TEST(ChunkMessageTest, PayloadNeedNotBeLast) {
  ps::PushChunk rest;
  rest.set_shard(5);
  const std::string bytes = std::string("\x7a\x04wxyz") + rest.SerializeAsString();
  for (size_t size : {size_t{1}, bytes.size()}) {
    ps::PushChunk header;
    Payload payload;
    ASSERT_TRUE(ParseChunk(Split(bytes, {size}), &header, &payload).ok());
    EXPECT_EQ(header.shard(), 5);
    EXPECT_EQ(ToString(payload), "wxyz");
  }
}

TEST(ChunkMessageTest, AcceptsAMissingPayloadAndUnknownFields) {
  ps::PushChunk header;
  Payload payload;
  ASSERT_TRUE(ParseChunk(grpc::ByteBuffer(), &header, &payload).ok());
  EXPECT_EQ(payload.size_bytes, 0);
  ASSERT_TRUE(ParseChunk(Whole(Header().SerializeAsString()), &header, &payload).ok());
  EXPECT_EQ(payload.size_bytes, 0);
  EXPECT_EQ(header.chunk(), 300);

  // Fields 100 (varint), 101 (fixed64), 102 (bytes) and 103 (fixed32), and field 15 as a number.
  const std::string unknown = std::string("\xa0\x06\x01", 3) +
                              std::string("\xa9\x06\1\2\3\4\5\6\7\x08", 10) + "\xb2\x06\x02hi" +
                              "\xbd\x06\1\2\3\4" + "\x78\x05";
  ASSERT_TRUE(
      ParseChunk(Whole(Header().SerializeAsString() + unknown + "\x7a\x02ok"), &header, &payload)
          .ok());
  EXPECT_EQ(header.chunk(), 300);
  EXPECT_EQ(ToString(payload), "ok");
}

TEST(ChunkMessageTest, RefusesHostileBytes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"payload twice", "\x7a\x01x\x7a\x01y"},
      {"payload longer than the message", "\x7a\x05xyz"},
      {"payload of 2^63 bytes", "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
      {"payload of 2^64 - 1 bytes", "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 abc"},
      {"length without an end", "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
      {"ends after the tag", "\x7a"},
      {"ends within the length", "\x7a\x80"},
      {"field number 0", std::string("\x00\x01", 2)},
      {"group", "\x0b\x0c"},
      {"wire type 7", "\x0f"},
      {"tag too long", "\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
      {"header field longer than the message", "\x0a\x7fxyz"},
      {"header field of 2^63 bytes", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
      {"bad bytes within the key", "\x0a\x02\xff\xff"},
      {"header too large", "\x0a\x80\x80\x08" + std::string(1 << 17, 'x')},
      {"many small unknown fields",
       [] {
         std::string all;
         for (int i = 0; i < 40000; ++i) all += "\xa0\x06\x01";
         return all;
       }()},
  };
  for (const auto& [name, bytes] : cases) {
    for (size_t size : {size_t{1}, bytes.size()}) {
      ps::PushChunk header;
      Payload payload;
      const absl::Status status = ParseChunk(Split(bytes, {size}), &header, &payload);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_EQ(payload.size_bytes, 0) << name;
      EXPECT_EQ(DecodeInto(Split(bytes, {size}), &header).status(), status) << name;
    }
  }
}

// The parser must read what protobuf accepts in the same way. What protobuf refuses, it must refuse
// or read without harm.
TEST(ChunkMessageTest, AgreesWithProtobufOnDamagedBytes) {
  ps::PushChunk plain = Header();
  plain.set_payload("0123456789abcdef");
  const std::string good = plain.SerializeAsString();
  CounterRandom random(1, 2);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good.substr(0, i % 2 == 0 ? good.size() : random.NextBelow(good.size()));
    for (uint64_t flips = random.NextBelow(4); flips > 0 && !bytes.empty(); --flips) {
      bytes[random.NextBelow(bytes.size())] ^= static_cast<char>(1 << random.NextBelow(8));
    }
    ps::PushChunk header, parsed;
    Payload payload;
    const grpc::ByteBuffer buffer = Split(bytes, {1 + random.NextBelow(20)});
    const bool ok = ParseChunk(buffer, &header, &payload).ok();
    const bool protobuf_ok = parsed.ParseFromString(bytes);
    ps::PushChunk same_header;
    const auto placed = DecodeInto(buffer, &same_header);
    ASSERT_EQ(placed.ok(), ok);
    if (!ok) continue;
    EXPECT_EQ(*placed, ToString(payload));
    EXPECT_EQ(same_header.SerializeAsString(), header.SerializeAsString());
    ASSERT_TRUE(protobuf_ok);
    ++accepted;
    EXPECT_EQ(ToString(payload), parsed.payload());
    parsed.clear_payload();
    EXPECT_EQ(header.SerializeAsString(), parsed.SerializeAsString());
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace pushpull
