"""Balance of a loss: prototype terms whose pull on the features is limited by that of the cross-entropy. Ours.

With the coefficients of FedPLCC's paper the prototype terms pull features a hundred times as hard as the cross-entropy, and
features that only follow prototypes carry no classes. docs/algorithms.md, rule 1.19, has the equation. Running means of the
factor would be a state that a kill has to keep; a factor for each sample gives another direction than any published loss;
clipping the whole gradient shrinks the cross-entropy too.
"""

from __future__ import annotations

from dataclasses import replace

from fedplcc.shared.methods.step import LossTerms


def balance_factor(task_norm: float, own_norm: float, balance: float) -> float:
    """Return s = min(1, r ||g_ce|| / ||g_p||), the factor of a method's own terms in one step; 1 where g_p is zero.

    Args:
        task_norm: ||g_ce||, the L2 norm of the gradient of the cross-entropy term with respect to the features `[B, D]`.
        own_norm: ||g_p||, that of the sum of all other terms, each with its coefficient.
        balance: r, `PrototypeConfig.balance`.
    """
    limit = balance * task_norm
    return limit / own_norm if own_norm > limit else 1.0


def balanced(terms: LossTerms, factor: float) -> LossTerms:
    """Return the terms with the coefficients of all but the first, the cross-entropy, times a factor."""
    first, *own = terms.items()
    return dict([first, *((name, replace(term, coefficient=term.coefficient * factor)) for name, term in own)])
