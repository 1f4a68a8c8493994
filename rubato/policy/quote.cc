#include "rubato/policy/quote.h"

#include <algorithm>
#include <fmt/format.h>

namespace rubato::policy {
namespace {

bool is_ahead(const Quote& other, const Quote& quote) {
  return other.zone == quote.zone && other.type == quote.type && other.bid > quote.bid;
}

std::string words_of_price(const Quote& quote) {
  if (quote.price <= 0) return "No job would gain by one more GPU, so a GPU costs nothing now.";
  return fmt::format(
      "The price of a GPU is {:.3g}: one more would save so many job-seconds a second.",
      quote.price);
}

std::string words_of_bid(const Quote& quote) {
  if (quote.bid <= 0) return "The job would gain nothing by more GPUs.";
  std::string text = fmt::format("The job bids {:.3g} for its {} GPU, because that is what it {}.",
                                 quote.bid, quote.gpus == 0 ? "first" : "next",
                                 quote.guessed ? "is expected to save" : "would save");
  if (quote.bid > quote.price)
    return text + " That is above the price: it gets GPUs as soon as enough are free together.";
  return text;
}

}  // namespace

std::optional<Quote> Quotes::of(JobId job) const {
  const auto found = std::lower_bound(quotes_.begin(), quotes_.end(), job,
                                      [](const Quote& quote, JobId id) { return quote.job < id; });
  if (found == quotes_.end() || found->job != job) return std::nullopt;
  Quote quote = *found;
  quote.ahead = static_cast<std::size_t>(std::count_if(
      quotes_.begin(), quotes_.end(), [&](const Quote& other) { return is_ahead(other, quote); }));
  return quote;
}

std::vector<JobId> Quotes::ahead_of(const Quote& quote) const {
  std::vector<JobId> jobs;
  for (const Quote& other : quotes_) {
    if (is_ahead(other, quote)) jobs.push_back(other.job);
  }
  return jobs;
}

std::vector<std::string> words(const Quote& quote) {
  std::vector<std::string> sentences{words_of_price(quote)};
  if (quote.promised)
    sentences.emplace_back("Its promise gives it the GPUs of its plan, whatever the price.");
  if (quote.turn)
    sentences.emplace_back("It had waited so long that it has a turn now, whatever the price.");
  sentences.push_back(words_of_bid(quote));
  if (quote.bid <= 0 || quote.bid > quote.price) return sentences;
  sentences.push_back(quote.ahead == 0 ? "No job that wants more GPUs bids more."
                      : quote.ahead == 1
                          ? "1 job that wants more GPUs bids more."
                          : fmt::format("{} jobs that want more GPUs bid more.", quote.ahead));
  if (quote.guessed)
    sentences.emplace_back(
        "Nobody said how long it is, so it is judged by jobs of its profile and user that have "
        "ended, and by what it has done.");
  return sentences;
}

}  // namespace rubato::policy
