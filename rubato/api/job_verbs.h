// Requests that act on one job and need only the job itself. A row gives a verb its route in the
// HTTP API (routes.h) and its command on the command line.
//
// To add one: its type and its place in Ask (request.h), a row in job_verbs.cc, and a handler
// (daemon/request_handler.cc). tools/check_api then asks for its entry in docs/openapi.yaml and its
// line in docs/http-api.md.
#pragma once

#include <span>
#include <string_view>

#include "rubato/api/request.h"

namespace rubato::api {

struct JobVerb {
  const char* command;  // "hold", as in `rubato hold JOB`
  const char* method;
  const char* path;  // "/v1/jobs/{job}/hold"
  Ask (*ask)(JobRef job);
  const char* help;     // of the command
  const char* example;  // of its help

  // "/hold": what follows the job in the path.
  [[nodiscard]] std::string_view suffix() const;
};

[[nodiscard]] std::span<const JobVerb> job_verbs();

}  // namespace rubato::api
