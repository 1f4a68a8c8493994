#include "rubato/http/server_metrics.h"

namespace rubato::http {
namespace {

double as_double(std::uint64_t count) { return static_cast<double>(count); }

}  // namespace

std::string http_metrics_text(const HttpMetrics& metrics, const HttpServer::Counts& counts) {
  MetricsWriter out;
  out.family("rubato_http_requests_total", "counter", "Requests answered, by route and status.");
  for (const auto& [route, values] : metrics.routes) {
    for (const auto& [status, count] : values.statuses) {
      out.sample(as_double(count), {{"route", route}, {"status", std::to_string(status)}});
    }
  }
  out.family("rubato_http_request_seconds", "histogram",
             "Time from the head of a request to its answer; without streams.");
  for (const auto& [route, values] : metrics.routes) {
    if (values.seconds.count() > 0) out.histogram(values.seconds, {{"route", route}});
  }
  out.family("rubato_http_refused_total", "counter", "What was refused because of a limit.");
  out.sample(as_double(metrics.refused_rate), {{"limit", "rate"}});
  out.sample(as_double(metrics.refused_in_flight), {{"limit", "in_flight"}});
  out.sample(as_double(metrics.refused_connections), {{"limit", "connections"}});
  out.sample(as_double(metrics.refused_streams), {{"limit", "streams"}});
  out.sample(as_double(metrics.evicted), {{"limit", "share"}});
  out.counter("rubato_http_connections_total", "Connections accepted.",
              as_double(metrics.accepted));
  out.counter("rubato_http_timeouts_total", "Connections closed because they took too long.",
              as_double(metrics.timed_out));
  out.gauge("rubato_http_connections", "Open connections.", as_double(counts.connections));
  out.gauge("rubato_http_in_flight", "Requests that the loop has not answered yet.",
            as_double(counts.in_flight));
  out.gauge("rubato_watchers", "Open event streams.", as_double(counts.watchers));
  out.counter("rubato_events_sent_total", "Events sent to watchers.", as_double(metrics.events));
  out.counter("rubato_event_resyncs_total", "Times a watcher was told to read everything again.",
              as_double(metrics.resyncs));
  return out.text();
}

}  // namespace rubato::http
