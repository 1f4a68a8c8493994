#include "rubato/http/server.h"

#include <utility>

#include "rubato/http/listen.h"
#include "rubato/http/server_thread.h"

namespace rubato::http {

namespace {

std::string https_address(const Certificate& certificate, const std::string& listens) {
  if (certificate.names().empty()) return "https://" + listens;
  return "https://" + certificate.names().front() + listens.substr(listens.rfind(':'));
}

}  // namespace

HttpServer::HttpServer(std::shared_ptr<HttpThread> thread, std::string address)
    : thread_(std::move(thread)), address_(std::move(address)) {}

HttpServer::~HttpServer() { thread_->stop(); }

HttpServer::Counts HttpServer::counts() const { return thread_->counts(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options, Loop& loop,
                                                      const Callers& callers, ChangeFeed& feed) {
  std::optional<Certificate> certificate;
  if (options.tcp && options.tls.given()) {
    auto opened = Certificate::open(options.tls);
    if (!opened) return opened.error();
    certificate = std::move(*opened);
  }
  const bool anywhere = options.beyond_loopback || certificate.has_value();
  auto thread = std::make_shared<HttpThread>(options, std::move(certificate), loop, callers, feed);
  std::string address;
  if (options.tcp) {
    auto listener = listen_tcp(options.host, options.port, anywhere);
    if (!listener) return listener.error();
    auto where = tcp_address(*listener);
    if (!where) return where.error();
    address = thread->certificate() ? https_address(*thread->certificate(), *where) : *where;
    thread->listen(*listener, false);
  }
  if (!options.unix_path.empty()) {
    auto listener = listen_unix(options.unix_path);
    if (!listener) return listener.error();
    thread->listen(*listener, true);
  }
  thread->begin();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(thread), std::move(address)));
}

}  // namespace rubato::http
