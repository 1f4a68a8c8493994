#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "cmd/command_page.h"

namespace rubato::cmd {
namespace {

// Characters that roff reads as its own, or prints as typographic ones.
std::string roff(std::string_view text) {
  std::string out;
  bool code = false;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '`':  // `code`, as in Markdown
        out += code ? "\\fR" : "\\fB";
        code = !code;
        break;
      default:
        out += c;
    }
  }
  // A line that begins with a point is a request.
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string section(std::string_view heading) {
  return fmt::format(".SH {}\n", roff(upper(heading)));
}

std::string literal(const std::vector<std::string>& lines) {
  std::string out = ".PP\n.RS 4\n.EX\n";
  for (const std::string& line : lines) out += roff(line) + "\n";
  return out + ".EE\n.RE\n";
}

std::string blocks(const std::vector<TextBlock>& blocks) {
  std::string out;
  for (const TextBlock& block : blocks)
    out += block.literal ? literal(block.lines) : fmt::format(".PP\n{}\n", roff(block.lines[0]));
  return out;
}

// Examples and exit codes have sections of their own.
std::string footer(const std::vector<TextBlock>& blocks_of_footer) {
  constexpr std::string_view kExit = "Exit code: ";
  std::string out;
  for (const TextBlock& block : blocks_of_footer) {
    const std::string& first = block.lines[0];
    if (!block.literal && (first == "Examples:" || first == "Example:")) {
      out += section("Examples");
    } else if (!block.literal && first.starts_with(kExit)) {
      out += section("Exit status") + roff(first.substr(kExit.size())) + "\n";
    } else {
      out += blocks({block});
    }
  }
  return out;
}

// Names are bold, and the words that stand for a value are italic: "-n, --limit NUMBER".
std::string term(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const bool name = word.starts_with('-') && word != "--";
    out += fmt::format("{}\\f{}{}\\fR", at == 0 ? "" : " ", name ? 'B' : 'I', roff(word));
    at = end + 1;
  }
  return out;
}

std::string terms(const std::vector<Term>& list) {
  std::string out;
  for (const Term& one : list) out += fmt::format(".TP\n{}\n{}\n", term(one.term), roff(one.help));
  return out;
}

// Names that stand as they are, such as exit codes.
std::string names(const std::vector<Term>& list) {
  std::string out;
  for (const Term& one : list)
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(one.term), roff(one.help));
  return out;
}

std::string usage(const CommandPage& page) {
  std::string_view rest = page.usage;
  rest.remove_prefix(page.name.size());
  return fmt::format("\\fB{}\\fR{}\n", roff(page.name), roff(rest));
}

constexpr std::string_view kOptions = "Options";

std::string groups(const std::vector<TermGroup>& list) {
  std::string out;
  for (const TermGroup& group : list) {
    // "Options", and then "Job options".
    const bool plain = group.heading == kOptions;
    out += section(plain ? group.heading : group.heading + " options") + terms(group.terms);
  }
  return out;
}

std::string options(const CommandPage& page) {
  const std::string arguments =
      page.arguments.empty() ? "" : section("Arguments") + terms(page.arguments);
  return arguments + groups(page.options);
}

// What `whatis` prints: "rubato-submit - submit a job to the daemon".
std::string name_line(const std::string& name, std::string summary) {
  if (summary.size() > 1 && std::islower(static_cast<unsigned char>(summary[1])) != 0)
    summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  return fmt::format("{} \\- {}\n", roff(name), roff(summary));
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

// Neither hyphens at the ends of lines nor justified lines: both would change names such as
// RUBATO_STATE.
std::string title(const std::string& name, const std::string& version) {
  return fmt::format(
      ".\\\" Written by rubato reference --man.\n"
      ".TH {} 1 \"\" \"rubato {}\" \"Rubato\"\n.nh\n.ad l\n",
      roff(upper(name)), version);
}

constexpr std::string_view kDocumentation =
    "The directory docs/ of the sources has a tutorial, instructions for operators and the format "
    "of job files.\n";

// The commands of a command. Options that several of them have, such as those of the connection,
// follow once.
std::string nested(const CommandSection& section_of_page) {
  std::string text = section(section_of_page.heading);
  std::vector<TermGroup> shared;
  for (const CommandPage& command : section_of_page.commands) {
    text += fmt::format(".SS {}\n", roff(command.name)) + blocks(command.description);
    text += terms(command.arguments);
    for (const TermGroup& group : command.options) {
      const auto same = [&](const TermGroup& one) { return one.heading == group.heading; };
      if (group.heading == kOptions) {
        text += terms(group.terms);
      } else if (std::none_of(shared.begin(), shared.end(), same)) {
        shared.push_back(group);
      }
    }
  }
  return text + groups(shared);
}

ManPage page_of_command(const CommandPage& page, const std::string& version) {
  const std::string name = with_dashes(page.name);
  std::string text = title(name, version) + section("Name") + name_line(name, page.summary);
  text += section("Synopsis") + usage(page);
  for (const CommandSection& part : page.sections) {
    for (const CommandPage& command : part.commands) text += ".br\n" + usage(command);
  }
  text += section("Description") + blocks(page.description) + options(page);
  for (const CommandSection& part : page.sections) text += nested(part);
  text += footer(page.footer) + section("See also") + ".BR rubato (1)\n.PP\n";
  return {name + ".1", text + std::string(kDocumentation)};
}

}  // namespace

std::vector<ManPage> man_pages(const CommandPage& program, const std::string& version) {
  // The description of the program begins with its name: "Rubato: an elastic scheduler".
  const std::string summary = program.summary.substr(program.summary.find(": ") + 2);
  std::string text = title(program.name, version) + section("Name");
  text += name_line(program.name, summary) + section("Synopsis") + usage(program);
  text += section("Description") + blocks(program.description) + options(program);
  std::vector<ManPage> pages;
  for (const CommandSection& part : program.sections) {
    text += section(part.heading);
    for (const CommandPage& command : part.commands) {
      text += fmt::format(".TP\n.BR {} (1)\n{}.\n", roff(with_dashes(command.name)),
                          roff(command.summary));
      pages.push_back(page_of_command(command, version));
    }
  }
  text += section("Environment") + names(environment_variables());
  text += section("Files") + ".TP\n.I \\(ti/.rubato\n";
  text +=
      "The state directory of the daemon, unless another one is given: journal, jobs, sockets and "
      "the admin's token.\n";
  text += section("Exit status") + names(exit_codes());
  text += section("See also") + std::string(kDocumentation);
  pages.insert(pages.begin(), {program.name + ".1", text});
  return pages;
}

}  // namespace rubato::cmd
