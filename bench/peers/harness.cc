// SPDX-License-Identifier: Apache-2.0
//
// The lines between the driver and a rank: a command of the driver, and the rank's answer.
//
//   (rank, when the library is up)              ready RANK SIZE ALGORITHM...
//   check ALGORITHM BYTES                       right | wrong EXPLANATION
//   turn ALGORITHM BYTES WARM_UP ITERATIONS     times NANOSECONDS...
//                                               (this rank's time for every iteration)
//   fresh ALGORITHM BYTES WARM_UP ITERATIONS    times NANOSECONDS...
//                                               (as turn, and the input is written anew before
//                                               every iteration, as gradients are)
//   rest                                        (nothing: the rank sleeps until the next line)
//   quit                                        (nothing: the rank ends)
//
// Instead of an answer a rank may send "failed EXPLANATION" and end. Between its answer and the
// next line a rank calls Library::progress() again and again, because another rank may still wait
// for bytes that are queued here. The driver sends "rest" when all ranks have answered: then an
// idle rank needs no CPU.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <stdexcept>

#include "control.h"
#include "library.h"

namespace rondo::compare {
namespace {

// Small integers, whose sum over all ranks is exact in f32 in any order.
float element(std::size_t index, int rank) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13) % 61);
}

class Measurer {
 public:
  explicit Measurer(Library& library) : library_(library) {}

  std::string check(std::istringstream& arguments) {
    prepare(arguments);
    for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = element(i, library_.rank());
    if (in_place_) {
      std::copy(input_.begin(), input_.end(), output_.begin());
    } else {
      std::fill(output_.begin(), output_.end(), -1.0F);
    }
    library_.barrier();
    library_.all_reduce();
    library_.barrier();
    for (std::size_t i = 0; i < output_.size(); ++i) {
      float expected = 0;
      for (int rank = 0; rank < library_.size(); ++rank) expected += element(i, rank);
      if (output_[i] != expected) return wrong(i, output_[i], expected);
      if (input_[i] != element(i, library_.rank()))
        return wrong(i, input_[i], element(i, library_.rank()));
    }
    return "right";
  }

  std::string turn(std::istringstream& arguments, bool fresh) {
    prepare(arguments);
    std::size_t warm_up = 0;
    std::size_t iterations = 0;
    if (!(arguments >> warm_up >> iterations))
      throw std::invalid_argument("turn: bad number of iterations");
    // Otherwise values that are reduced in place would grow without limit.
    if (in_place_) std::fill(output_.begin(), output_.end(), 0.0F);
    // Written here, so that the rank touches no new page while it measures.
    std::vector<std::chrono::steady_clock::duration> times(iterations);
    for (std::size_t i = 0; i < warm_up + iterations; ++i) {
      if (fresh) std::ranges::fill(in_place_ ? output_ : std::span(input_), element(i, 0));
      library_.barrier();
      const auto start = std::chrono::steady_clock::now();
      library_.all_reduce();
      const auto time = std::chrono::steady_clock::now() - start;
      if (i >= warm_up) times[i - warm_up] = time;
    }
    library_.barrier();  // so that no answer wakes the driver while a rank is still measuring
    std::string reply = "times";
    for (const auto time : times)
      reply += ' ' + std::to_string(std::chrono::nanoseconds(time).count());
    return reply;
  }

 private:
  void prepare(std::istringstream& arguments) {
    std::string algorithm;
    std::size_t bytes = 0;
    if (!(arguments >> algorithm >> bytes))
      throw std::invalid_argument("bad algorithm or number of bytes");
    const std::size_t count = bytes / sizeof(float);
    if (count == output_.size() && algorithm == algorithm_) return;
    if (count != output_.size()) {
      input_.assign(count, 0.0F);
      output_ = library_.allocate(algorithm, count);
      ordinary_.assign(output_.empty() ? count : 0, 0.0F);
      if (output_.empty()) output_ = ordinary_;
    }
    algorithm_ = algorithm;
    in_place_ = library_.in_place(algorithm);
    library_.prepare(algorithm, input_, output_);
  }

  static std::string wrong(std::size_t index, float got, float expected) {
    std::ostringstream text;
    text << "wrong element " << index << ": " << got << " instead of " << expected;
    return text.str();
  }

  Library& library_;
  std::string algorithm_;
  bool in_place_ = false;
  std::vector<float> input_;
  std::vector<float> ordinary_;  // the output, unless the library allocates it
  std::span<float> output_;
};

void handle(Control& control, Library& library) {
  Measurer measurer(library);
  while (std::optional<std::string> line = control.read_line()) {
    std::istringstream arguments(*line);
    std::string command;
    arguments >> command;
    if (command == "quit") return;
    if (command == "rest") continue;
    if (command == "check") {
      control.write_line(measurer.check(arguments));
    } else if (command == "turn" || command == "fresh") {
      control.write_line(measurer.turn(arguments, command == "fresh"));
    } else {
      throw std::invalid_argument("unknown command: " + *line);
    }
    while (!control.readable()) {
      library.progress();
      ::sched_yield();
    }
  }
}

}  // namespace

int run_rank(const std::string& control_path, const MakeLibrary& make_library) {
  return run_controlled(control_path, [&](Control& control) {
    const std::unique_ptr<Library> library = make_library();
    control.write_line(ready_line(library->rank(), library->size(), library->algorithms()));
    handle(control, *library);
  });
}

}  // namespace rondo::compare
