#include "common/wire/security/peer_identity.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(PeerIdentityTest, ReadsAndWritesEveryForm) {
  const WorkerIdRange all;
  const struct {
    const char* uri;
    PeerIdentity identity;
  } cases[] = {
      {"spiffe://pushpull/digits/ps", {"digits", PeerRole::kPs, all}},
      {"spiffe://pushpull/digits/evaluator", {"digits", PeerRole::kEvaluator, all}},
      {"spiffe://pushpull/A.b_c-9/admin", {"A.b_c-9", PeerRole::kAdmin, all}},
      {"spiffe://pushpull/digits/worker/any", {"digits", PeerRole::kWorker, all}},
      {"spiffe://pushpull/digits/worker/0", {"digits", PeerRole::kWorker, {0, 0}}},
      {"spiffe://pushpull/digits/worker/6-8", {"digits", PeerRole::kWorker, {6, 8}}},
      {"spiffe://pushpull/digits/worker/4294967295",
       {"digits", PeerRole::kWorker, {4294967295, 4294967295}}},
  };
  for (const auto& c : cases) {
    const auto parsed = ParsePeerIdentity(c.uri);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, c.identity) << c.uri;
    EXPECT_EQ(PeerIdentityUri(c.identity), c.uri);
  }
}

TEST(PeerIdentityTest, RefusesEverythingElse) {
  for (const std::string uri : {"",
                                "spiffe://pushpull/",
                                "spiffe://pushpull/digits",
                                "spiffe://pushpull//ps",
                                "spiffe://pushpull/digits/",
                                "spiffe://pushpull/digits/root",
                                "spiffe://pushpull/digits/PS",
                                "spiffe://pushpull/digits/ps/",
                                "spiffe://pushpull/digits/ps/0",
                                "spiffe://pushpull/digits/worker",
                                "spiffe://pushpull/digits/worker/",
                                "spiffe://pushpull/digits/worker/-1",
                                "spiffe://pushpull/digits/worker/+1",
                                "spiffe://pushpull/digits/worker/ 1",
                                "spiffe://pushpull/digits/worker/1-",
                                "spiffe://pushpull/digits/worker/3-1",
                                "spiffe://pushpull/digits/worker/1-2-3",
                                "spiffe://pushpull/digits/worker/0x1",
                                "spiffe://pushpull/digits/worker/4294967296",
                                "spiffe://pushpull/digits/worker/1/2",
                                "spiffe://pushpull/di gits/ps",
                                "spiffe://pushpull/digits%2F/ps",
                                "spiffe://other/digits/ps",
                                "https://pushpull/digits/ps",
                                "SPIFFE://pushpull/digits/ps",
                                " spiffe://pushpull/digits/ps"}) {
    EXPECT_FALSE(ParsePeerIdentity(uri).ok()) << uri;
  }
  EXPECT_FALSE(ParsePeerIdentity("spiffe://pushpull/" + std::string(64, 'a') + "/ps").ok());
  EXPECT_FALSE(ParsePeerIdentity(std::string("spiffe://pushpull/a\0b/ps", 24)).ok());
}

TEST(PeerIdentityTest, MessagesCarryNoControlCharacters) {
  const std::string message(
      ParsePeerIdentity("spiffe://x\n2026-01-01 all is well\x1b[2J").status().message());
  EXPECT_THAT(message, testing::HasSubstr("\\n2026"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace pushpull
