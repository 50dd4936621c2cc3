// Overloaded builds a visitor for std::visit from one lambda per alternative.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_OVERLOADED_H_
#define PUSHPULL_PS_SERVER_RUNTIME_OVERLOADED_H_

namespace pushpull {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_OVERLOADED_H_
