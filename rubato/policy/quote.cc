#include "rubato/policy/quote.h"

#include <fmt/format.h>

namespace rubato::policy {

std::string words(const Quote& quote) {
  std::string text = fmt::format(
      "One more GPU would save {:.3g} job-seconds a second: that is its "
      "price.",
      quote.price);
  if (quote.promised) text += " The job follows the plan of its promise.";
  if (quote.turn) text += " It had waited too long and has a turn now.";
  if (quote.bid <= 0) return text + " The job wants no more GPUs than it has.";
  text += fmt::format(" Its next GPU would save {:.3g}.", quote.bid);
  if (quote.bid > quote.price) return text + " It gets one as soon as so many are free together.";
  if (quote.ahead == 0) return text + " No job that wants more bids more.";
  return text +
         fmt::format(" {} {} more.", quote.ahead,
                     quote.ahead == 1 ? "job that wants a GPU bids" : "jobs that want GPUs bid");
}

}  // namespace rubato::policy
