#include "rubato/journal/digest.h"

#include <gtest/gtest.h>
#include <string>

namespace rubato::journal {
namespace {

std::string hex_of(const Digest& digest) {
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

TEST(Digest, IsSha256) {
  EXPECT_EQ(hex_of(Digester().finish()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  // Of eight zero bytes, and of the length 3 and "abc".
  EXPECT_EQ(hex_of(Digester().add(std::int64_t{0}).finish()),
            "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
}

TEST(Digest, TellsSequencesApart) {
  Digester digester;
  const Digest one = digester.add("ab").add("c").finish();
  EXPECT_NE(one, digester.add("a").add("bc").finish());
  EXPECT_NE(one, digester.add("abc").finish());
  EXPECT_EQ(one, digester.add("ab").add("c").finish()) << "nothing is left of what came before";
  EXPECT_NE(digester.add(std::int64_t{1}).finish(), digester.add(std::int64_t{-1}).finish());
}

}  // namespace
}  // namespace rubato::journal
