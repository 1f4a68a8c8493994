// The counters of the HTTP server, and their text for `GET /metrics`.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rubato/api/metrics.h"
#include "rubato/http/server.h"

namespace rubato::http {

struct RouteCounts {
  std::map<int, std::uint64_t> statuses;
  Histogram seconds{bucket_bounds(1e-4, 10)};
};

struct HttpMetrics {
  std::map<std::string, RouteCounts> routes;
  std::uint64_t refused_rate = 0;
  std::uint64_t refused_in_flight = 0;
  std::uint64_t refused_connections = 0;
  std::uint64_t refused_streams = 0;
  std::uint64_t evicted = 0;
  std::uint64_t accepted = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t events = 0;
  std::uint64_t resyncs = 0;
};

[[nodiscard]] std::string http_metrics_text(const HttpMetrics& metrics,
                                            const HttpServer::Counts& counts);

}  // namespace rubato::http
