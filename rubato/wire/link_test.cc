#include "rubato/wire/link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>

#include "rubato/wire/frame_server.h"

namespace rubato::wire {
namespace {

struct Ends {
  Fd one;
  Fd other;
};

Ends connected_sockets() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

LinkKey key_of(const std::string& identity, const std::string& secret = "the job's secret") {
  return derive_link_key(identity, secret, "start 1, round 0");
}

FindLinkKey knows(const LinkKey& key) {
  return [key](std::string_view identity) {
    return identity == key.identity ? std::optional(key) : std::nullopt;
  };
}

// One end of a conversation: what it still wants to say, and what it has heard.
struct Speaker {
  explicit Speaker(Link with, std::string text = {})
      : link(std::move(with)), unsent(std::move(text)) {}

  // Whether anything moved.
  bool turn() {
    bool moved = false;
    if (link.wants_out(!unsent.empty())) {
      const Link::Moved sent = link.write(std::as_bytes(std::span(unsent)));
      unsent.erase(0, sent.bytes);
      moved = sent.bytes > 0;
    }
    std::array<char, 5000> buffer{};
    const Link::Moved got = link.read(std::as_writable_bytes(std::span(buffer)));
    heard.append(buffer.data(), got.bytes);
    moved = moved || got.bytes > 0 || (got.over && !over);
    over = over || got.over;
    return moved;
  }

  Link link;
  std::string unsent;
  std::string heard;
  bool over = false;
};

// A handshake takes a few turns in which no byte of the owners moves.
void converse(Speaker& one, Speaker& other) {
  for (int quiet = 0; quiet < 4; ++quiet) {
    for (bool moved = true; moved;) {
      moved = one.turn();
      moved = other.turn() || moved;
      if (moved) quiet = 0;
    }
  }
}

std::string long_text(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 % 251);
  return text;
}

TEST(LinkKey, IsDerivedAsRfc5869Says) {
  // Test case 3: no salt, no info.
  const LinkKey key = derive_link_key("a", std::string(22, '\x0b'), "");
  const std::array<unsigned char, kLinkKeyBytes> expected{
      0x8d, 0xa4, 0xe7, 0x75, 0xa5, 0x63, 0xc1, 0x8f, 0x71, 0x5f, 0x80,
      0x2a, 0x06, 0x3c, 0x5a, 0x31, 0xb8, 0xa1, 0x1f, 0x5c, 0x5e, 0xe1,
      0x87, 0x9e, 0xc3, 0x45, 0x4e, 0x5f, 0x3c, 0x73, 0x8d, 0x2d};
  EXPECT_EQ(key.secret, expected);
  EXPECT_NE(derive_link_key("a", "secret", "start 1").secret,
            derive_link_key("a", "secret", "start 2").secret);
}

TEST(Link, CarriesBytesInThePlain) {
  Ends ends = connected_sockets();
  Speaker one(Link(std::move(ends.one)), long_text(3'000'000));
  Speaker other(Link(std::move(ends.other)), "and back");
  converse(one, other);
  EXPECT_EQ(other.heard, long_text(3'000'000));
  EXPECT_EQ(one.heard, "and back");
  one.link.close();
  converse(one, other);
  EXPECT_TRUE(other.over);
}

TEST(Link, CarriesBytesUnderAKey) {
  Ends ends = connected_sockets();
  const LinkKey key = key_of("job/1/0/7");
  Speaker dialler(Link(std::move(ends.one), key), long_text(3'000'000));
  Speaker listener(Link(std::move(ends.other), knows(key)), "and back");
  EXPECT_EQ(listener.link.peer(), "") << "nothing is proven yet";
  converse(dialler, listener);
  EXPECT_EQ(listener.link.trouble() + dialler.link.trouble(), "");
  EXPECT_TRUE(listener.heard == long_text(3'000'000));
  EXPECT_EQ(dialler.heard, "and back");
  EXPECT_EQ(listener.link.peer(), "job/1/0/7");
  EXPECT_FALSE(dialler.over || listener.over);
  dialler.link.close();
  converse(dialler, listener);
  EXPECT_TRUE(listener.over);
  EXPECT_EQ(listener.link.trouble(), "") << "it was a proper end";
}

TEST(Link, RefusesAWrongKey) {
  Ends ends = connected_sockets();
  Speaker dialler(Link(std::move(ends.one), key_of("job/1/0/7", "a guess")), "let me in");
  Speaker listener(Link(std::move(ends.other), knows(key_of("job/1/0/7"))), "a secret");
  converse(dialler, listener);
  EXPECT_TRUE(dialler.over && listener.over);
  EXPECT_EQ(listener.heard + dialler.heard, "");
  EXPECT_EQ(listener.link.peer(), "");
  EXPECT_NE(listener.link.trouble(), "");
}

TEST(Link, RefusesAnUnknownIdentity) {
  Ends ends = connected_sockets();
  Speaker dialler(Link(std::move(ends.one), key_of("job/0/0/7")), "let me in");
  Speaker listener(Link(std::move(ends.other), knows(key_of("job/1/0/7"))), "a secret");
  converse(dialler, listener);
  EXPECT_TRUE(dialler.over && listener.over);
  EXPECT_EQ(listener.heard + dialler.heard, "");
}

TEST(Link, RefusesADiallerWithoutTls) {
  Ends ends = connected_sockets();
  Speaker dialler(Link(std::move(ends.one)), to_frame({{"type", "hello"}, {"uid", 1}}));
  Speaker listener(Link(std::move(ends.other), knows(key_of("job/1/0/7"))), "a secret");
  converse(dialler, listener);
  EXPECT_TRUE(listener.over);
  EXPECT_EQ(listener.heard, "");
  EXPECT_EQ(dialler.heard.find("secret"), std::string::npos);
}

TEST(Link, RefusesAListenerWithoutTls) {
  Ends ends = connected_sockets();
  Speaker dialler(Link(std::move(ends.one), key_of("job/1/0/7")), "a secret");
  Speaker listener(Link(std::move(ends.other)), "HTTP/1.1 200 OK\r\n\r\n");
  converse(dialler, listener);
  EXPECT_TRUE(dialler.over);
  EXPECT_EQ(dialler.heard, "");
  EXPECT_EQ(listener.heard.find("secret"), std::string::npos);
}

// A server of OpenSSL that knows no key, but has a certificate that it has signed itself.
class CertificateServer {
 public:
  explicit CertificateServer(const Fd& fd) : context_(SSL_CTX_new(TLS_server_method())) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd.get());
    SSL_set_accept_state(ssl_);
  }
  ~CertificateServer() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  void turn() { (void)SSL_do_handshake(ssl_); }
  [[nodiscard]] bool connected() const { return SSL_is_init_finished(ssl_) == 1; }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
};

TEST(Link, RefusesAListenerThatHasOnlyACertificate) {
  Ends ends = connected_sockets();
  Speaker dialler(Link(std::move(ends.one), key_of("job/1/0/7")), "a secret");
  CertificateServer server(ends.other);
  for (int i = 0; i < 8; ++i) {
    server.turn();
    dialler.turn();
  }
  EXPECT_TRUE(dialler.over);
  EXPECT_FALSE(server.connected());
}

// Between two links: passes bytes on, and keeps or changes those of the dialler.
struct Relay {
  void pass(const Fd& from, const Fd& to, std::string* copy) {
    std::array<char, 65536> buffer{};
    const ssize_t size = recv(from.get(), buffer.data(), buffer.size(), 0);
    if (size <= 0) return;
    std::string bytes(buffer.data(), static_cast<std::size_t>(size));
    if (copy != nullptr) {
      if (flip_at && *flip_at >= copy->size() && *flip_at < copy->size() + bytes.size()) {
        bytes[*flip_at - copy->size()] ^= 1;
      }
      copy->append(bytes);
    }
    ASSERT_EQ(send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), size);
  }
  std::string seen;  // from the dialler
  std::optional<std::size_t> flip_at;
};

void converse_through(Relay& relay, Speaker& dialler, const Ends& near, const Ends& far,
                      Speaker& listener) {
  for (int i = 0; i < 20; ++i) {
    dialler.turn();
    relay.pass(near.other, far.one, &relay.seen);
    listener.turn();
    relay.pass(far.one, near.other, nullptr);
  }
}

TEST(Link, RecordedBytesAreWorthless) {
  const LinkKey key = key_of("job/1/0/7");
  Relay relay;
  {
    Ends near = connected_sockets();
    Ends far = connected_sockets();
    Speaker dialler(Link(std::move(near.one), key), "resize to 4");
    Speaker listener(Link(std::move(far.other), knows(key)));
    converse_through(relay, dialler, near, far, listener);
    EXPECT_EQ(listener.heard, "resize to 4");
    EXPECT_EQ(relay.seen.find("resize"), std::string::npos);
  }
  Ends ends = connected_sockets();
  Speaker replay(Link(std::move(ends.one)), relay.seen);
  Speaker listener(Link(std::move(ends.other), knows(key)), "a secret");
  converse(replay, listener);
  EXPECT_EQ(listener.heard, "");
  EXPECT_EQ(listener.link.peer(), "");
  EXPECT_TRUE(listener.over);
}

struct Outcome {
  std::string heard;
  bool over = false;
};

// A relay changes a bit of the byte `at` that the dialler sends, counted from the first byte of the
// connection or from the first after the keys are exchanged.
Outcome change_a_bit(const std::string& text, bool after_the_keys, std::size_t at) {
  const LinkKey key = key_of("job/1/0/7");
  Relay relay;
  Ends near = connected_sockets();
  Ends far = connected_sockets();
  Speaker dialler(Link(std::move(near.one), key));
  Speaker listener(Link(std::move(far.other), knows(key)));
  if (after_the_keys) converse_through(relay, dialler, near, far, listener);
  relay.flip_at = relay.seen.size() + at;
  dialler.unsent = text;
  converse_through(relay, dialler, near, far, listener);
  return {listener.heard, listener.over};
}

RC_GTEST_PROP(Link, AChangedBitEndsTheLink, ()) {
  const std::string text = long_text(1000);
  // Behind the header of the record: with a changed length, the listener waits for more bytes.
  const Outcome outcome = change_a_bit(text, true, *rc::gen::inRange<std::size_t>(5, 1000));
  RC_ASSERT(outcome.over);
  RC_ASSERT(outcome.heard.empty());
}

// While keys are exchanged, some bits mean nothing, for example those of the record's old version.
// With others the listener waits for more bytes. Nobody is ever believed to have said another text.
RC_GTEST_PROP(Link, ABitChangedWhileKeysAreExchangedChangesNothingElse, ()) {
  const std::string text = long_text(1000);
  const Outcome outcome = change_a_bit(text, false, *rc::gen::inRange<std::size_t>(0, 500));
  RC_ASSERT(outcome.heard == text || outcome.heard.empty());
}

TEST(Link, WhatWasSaidBeforeTheEndIsHeard) {
  for (const bool with_key : {false, true}) {
    Ends ends = connected_sockets();
    const LinkKey key = key_of("job/1/0/7");
    Speaker dialler(with_key ? Link(std::move(ends.one), key) : Link(std::move(ends.one)));
    Speaker listener(with_key ? Link(std::move(ends.other), knows(key))
                              : Link(std::move(ends.other)));
    converse(dialler, listener);
    ASSERT_EQ(dialler.link.write(std::as_bytes(std::span("goodbye", 7))).bytes, 7U);
    dialler.link.close();
    // The listener does not know yet, and speaks. That must not end this process either.
    (void)listener.link.write(std::as_bytes(std::span("hello?", 6)));
    (void)listener.link.write(std::as_bytes(std::span("hello?", 6)));
    while (listener.turn()) {
    }
    EXPECT_EQ(listener.heard, "goodbye");
    EXPECT_TRUE(listener.over);
  }
}

TEST(Link, SaysWhatItHasDecryptedAlready) {
  Ends ends = connected_sockets();
  const LinkKey key = key_of("job/1/0/7");
  Speaker dialler(Link(std::move(ends.one), key));
  Speaker listener(Link(std::move(ends.other), knows(key)));
  converse(dialler, listener);
  ASSERT_EQ(
      dialler.link
          .write(std::as_bytes(std::span("header", 6)), std::as_bytes(std::span("payload", 7)))
          .bytes,
      13U);
  std::array<std::byte, 2> two{};
  EXPECT_EQ(listener.link.read(two).bytes, 2U);
  EXPECT_TRUE(listener.link.buffered());
  while (listener.turn()) {
  }
  EXPECT_FALSE(listener.link.buffered());
  EXPECT_EQ(listener.heard, "aderpayload");
}

TEST(FrameStream, SpeaksUnderAKey) {
  Ends ends = connected_sockets();
  const LinkKey key = key_of("job/1/0/7");
  FrameStream dialler(Link(std::move(ends.one), key));
  FrameStream listener(Link(std::move(ends.other), knows(key)));
  // Both speak before their keys are exchanged.
  dialler.send({{"from", "dialler"}, {"size", std::string(1'000'000, 'x')}});
  listener.send({{"from", "listener"}});
  std::vector<Json> at_listener;
  std::vector<Json> at_dialler;
  const auto take = [](FrameStream& stream, std::vector<Json>& all) {
    for (Json& message : stream.receive()) all.push_back(std::move(message));
    if (stream.wants_out()) stream.flush();
  };
  for (int i = 0; i < 1000 && (at_listener.empty() || at_dialler.empty()); ++i) {
    take(dialler, at_dialler);
    take(listener, at_listener);
  }
  ASSERT_EQ(at_listener.size(), 1U);
  ASSERT_EQ(at_dialler.size(), 1U);
  EXPECT_EQ(at_listener.front()["from"], "dialler");
  EXPECT_EQ(at_dialler.front()["from"], "listener");
  EXPECT_FALSE(dialler.unsent() || listener.unsent());
}

TEST(FrameServer, LetsInOnlyWhoKnowsAKey) {
  Poller poller;
  std::vector<Json> messages;
  int dropped = 0;
  FrameServer* server_of_handlers = nullptr;
  FrameServer server(poller, {[&](int key, const Json& message) {
                                messages.push_back(message);
                                server_of_handlers->send(key, {{"type", "welcome"}});
                              },
                              [&](int) { ++dropped; }, [] {}});
  server_of_handlers = &server;
  const LinkKey key = key_of("job/1/0/7");
  Result<Fd> listener = listen_on("tcp:127.0.0.1:0");
  const std::string address = *address_of(*listener);
  server.listen(std::move(*listener), knows(key));

  FrameStream friendly(Link(std::move(*connect_to(address)), key));
  FrameStream plain(std::move(*connect_to(address)));
  FrameStream guessing(Link(std::move(*connect_to(address)), key_of("job/1/0/7", "a guess")));
  for (FrameStream* stream : {&friendly, &plain, &guessing}) stream->send({{"type", "hello"}});
  std::vector<Json> answers;
  while (answers.empty() || plain.open() || guessing.open()) {
    poller.wait(std::chrono::milliseconds(10));
    for (Json& answer : friendly.receive()) answers.push_back(std::move(answer));
    for (FrameStream* stream : {&friendly, &plain, &guessing}) {
      if (stream->wants_out()) stream->flush();
    }
    EXPECT_TRUE(plain.receive().empty());
    EXPECT_TRUE(guessing.receive().empty());
  }
  EXPECT_EQ(messages.size(), 1U);
  EXPECT_EQ(dropped, 2);
  EXPECT_TRUE(friendly.open());
}

}  // namespace
}  // namespace rubato::wire
